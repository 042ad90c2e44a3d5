// Runs random attention calls on a GPU through aotbuild and compares them with a reference computed
// here in double precision. Built without a GPU toolkit, it shows what it would use.
#include <aotbuild/aotbuild.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>

#include "case.h"
#include "device.h"

namespace {

constexpr int kDefaultCases = 200;
constexpr char kUsage[] =
    "usage: cpp_host [PACKS [CASES [SEED]]]\n"
    "\n"
    "  PACKS  folder that holds <arch>/attention.aotpack; searched before the default places\n"
    "  CASES  number of random calls (200)\n"
    "  SEED   of the random numbers (1)\n"
    "\n"
    "Exit codes: 0 all calls are right, 1 one is not, 2 this usage.\n";

struct Options {
  const char* packs = nullptr;
  int cases = kDefaultCases;
  int seed = 1;
};

bool parse_number(const char* text, int& number) {
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, number);
  return error == std::errc() && rest == end && number > 0;
}

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  if (argc > 4 || (argc > 1 && argv[1][0] == '-')) return std::nullopt;
  if (argc > 1) options.packs = argv[1];
  if (argc > 2 && !parse_number(argv[2], options.cases)) return std::nullopt;
  if (argc > 3 && !parse_number(argv[3], options.seed)) return std::nullopt;
  return options;
}

void check_status(aotbuild_status status) {
  if (status == AOTBUILD_OK) return;
  throw std::runtime_error(std::string(aotbuild_status_name(status)) + ": " +
                           aotbuild_last_error());
}

class Library {
 public:
  explicit Library(const char* packs) {
    aotbuild_open_options options = AOTBUILD_INIT(aotbuild_open_options);
    options.paths = &packs;
    options.path_count = packs != nullptr ? 1 : 0;
    check_status(aotbuild_open(&options, &library_));
  }
  ~Library() { aotbuild_close(library_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  aotbuild_library* get() const { return library_; }

  std::string describe(const char* arch) const {
    size_t needed = 0;
    check_status(aotbuild_describe(library_, arch, nullptr, 0, &needed));
    std::string text(needed, '\0');
    check_status(aotbuild_describe(library_, arch, text.data(), text.size(), &needed));
    text.resize(std::strlen(text.c_str()));
    return text;
  }

 private:
  aotbuild_library* library_ = nullptr;
};

#ifdef GPU

// A host tensor's copy on the device, and DLPack's view of it.
class DeviceTensor {
 public:
  explicit DeviceTensor(HostTensor& host) : host_(host), buffer_(host.bytes.size()) {
    buffer_.write(host.bytes.data());
    const DtypeFacts& facts = facts_of(host.dtype);
    view_.data = buffer_.data();
    view_.device = {kDeviceType, 0};
    view_.ndim = static_cast<int32_t>(host.shape.size());
    view_.dtype = {facts.code, static_cast<uint8_t>(facts.bytes * 8), 1};
    view_.shape = host.shape.data();
    view_.strides = host.strides.data();
  }
  const aotbuild_tensor* view() const { return &view_; }
  void read_back() { buffer_.read(host_.bytes.data()); }

 private:
  HostTensor& host_;
  DeviceBuffer buffer_;
  aotbuild_tensor view_ = {};
};

void run_on_device(const Library& library, const Stream& stream, Case& c) {
  const DeviceTensor q(c.q);
  const DeviceTensor k(c.k);
  const DeviceTensor v(c.v);
  DeviceTensor out(c.out);
  DeviceTensor lse(c.lse);
  aotbuild_attention_forward_args args = AOTBUILD_INIT(aotbuild_attention_forward_args);
  args.q = q.view();
  args.k = k.view();
  args.v = v.view();
  args.out = out.view();
  args.lse = lse.view();
  args.scale = c.scale;
  args.window_left = c.window_left;
  args.window_right = c.window_right;
  args.window_align = c.align;
  args.stream = stream.get();
  check_status(aotbuild_attention_forward(library.get(), &args));
  stream.synchronize();
  out.read_back();
  lse.read_back();
}

int run_cases(const Library& library, const Options& options) {
  char arch[32] = {};
  check_status(aotbuild_device_arch(kDeviceType, 0, arch, sizeof(arch)));
  std::printf("device 0 is %s\n%s\n", arch, library.describe(arch).c_str());
  const Stream stream;
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  int failed = 0;
  std::printf("%10s %10s  %s\n", "out", "lse", "case (relative errors)");
  for (int i = 0; i < options.cases; ++i) {
    Case c = random_case(random);
    run_on_device(library, stream, c);
    const Errors errors = check_case(c);
    const double tolerance = facts_of(c.q.dtype).tolerance;
    // Written so that a NaN fails. The LSE is float32 computed from products in the inputs' type.
    const bool right = errors.out < tolerance && errors.lse < tolerance && errors.fault.empty();
    if (!right) ++failed;
    std::printf("%10.2e %10.2e  %s%s%s\n", errors.out, errors.lse, c.describe().c_str(),
                right ? "" : "  WRONG ", errors.fault.c_str());
  }
  std::printf("%d passed, %d failed\n", options.cases - failed, failed);
  return failed == 0 ? 0 : 1;
}

#else

int run_cases(const Library& library, const Options& options) {
  std::printf("%s\n", library.describe(nullptr).c_str());
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  std::printf("first case: %s\n", random_case(random).describe().c_str());
  std::printf(
      "Built without a GPU toolkit, so nothing was computed: configure with\n"
      "-DCPP_HOST_VENDOR=cuda or -DCPP_HOST_VENDOR=hip to run the cases.\n");
  return 0;
}

#endif  // GPU

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Options> options = parse(argc, argv);
  if (!options) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  try {
    std::printf("aotbuild %s\n", aotbuild_version());
    const Library library(options->packs);
    return run_cases(library, *options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cpp_host: %s\n", error.what());
    return 1;
  }
}
