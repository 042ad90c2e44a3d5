// aotbuild._native: the C ABI for Python. It converts, releases the GIL and raises; checking
// arguments is the runtime's work, and convenience that of aotbuild/runtime.py.
#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "aotbuild/aotbuild.h"
#include "dlpack.h"

namespace nb = nanobind;

namespace {

using aotbuild::bindings::Access;
using aotbuild::bindings::borrow;

constexpr size_t kArchSize = 64;

[[noreturn]] void raise_status(aotbuild_status status) {
  const nb::object make = nb::module_::import_("aotbuild.errors").attr("launch_error");
  const nb::object error = make(status, aotbuild_last_error());
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

// Runs a call of the C ABI without the GIL. The message of a failure is the thread's own, so it
// is still there when the GIL is back.
template <class F>
void call(F&& function) {
  aotbuild_status status = AOTBUILD_OK;
  {
    const nb::gil_scoped_release unlocked;
    status = function();
  }
  if (status != AOTBUILD_OK) raise_status(status);
}

const aotbuild_tensor* borrow_optional(nb::handle object, const std::string& name, Access access) {
  return object.is_none() ? nullptr : borrow(object.ptr(), name, access);
}

// What a call would run; copies of aotbuild_launch_info's strings outlive the library.
struct LaunchInfo {
  std::string pack;
  std::string image;
  uint64_t workspace_size;
  uint64_t workspace_align;
  std::tuple<uint32_t, uint32_t, uint32_t> grid;
  uint32_t threads;
  uint32_t shared_bytes;
  uint32_t registers;

  explicit LaunchInfo(const aotbuild_launch_info& info)
      : pack(info.pack),
        image(info.image),
        workspace_size(info.workspace_size),
        workspace_align(info.workspace_align),
        grid(info.grid[0], info.grid[1], info.grid[2]),
        threads(info.threads),
        shared_bytes(info.shared_bytes),
        registers(info.registers) {}
};

// Device memory lent for one launch.
struct Workspace {
  void* data = nullptr;
  size_t size = 0;

  explicit Workspace(nb::handle object) {
    const aotbuild_tensor* tensor = borrow_optional(object, "workspace", Access::kWrite);
    if (tensor == nullptr) return;
    if (tensor->ndim != 1 || (tensor->strides != nullptr && tensor->strides[0] != 1)) {
      throw std::invalid_argument("workspace: expected a contiguous tensor of one dimension");
    }
    data = static_cast<char*>(tensor->data) + tensor->byte_offset;
    size = static_cast<size_t>(tensor->shape[0]) * tensor->dtype.bits / 8;
  }
};

aotbuild_stream to_stream(uintptr_t stream) { return reinterpret_cast<aotbuild_stream>(stream); }

// Named arguments of a generic call. Owns the names and holds the capsules, since the dicts that
// they came from may change while the GIL is released.
class Arguments {
 public:
  Arguments(const nb::dict& inputs, const nb::dict& outputs, const nb::dict& values) {
    add_tensors(inputs, Access::kRead);
    add_tensors(outputs, Access::kWrite);
    for (const auto& [key, object] : values) add_value(nb::cast<std::string>(key), object);
  }

  aotbuild_launch_args fill(const std::string& family, const std::string& op) const {
    aotbuild_launch_args args = AOTBUILD_INIT(aotbuild_launch_args);
    args.family = family.c_str();
    args.op = op.c_str();
    args.args = args_.data();
    args.arg_count = args_.size();
    return args;
  }

 private:
  aotbuild_arg& append(std::string name, int32_t kind) {
    names_.push_back(std::move(name));
    aotbuild_arg arg = {};
    arg.name = names_.back().c_str();
    arg.kind = kind;
    return args_.emplace_back(arg);
  }

  void add_tensors(const nb::dict& tensors, Access access) {
    for (const auto& [key, object] : tensors) {
      const auto name = nb::cast<std::string>(key);
      held_.push_back(nb::borrow(object));
      append(name, AOTBUILD_ARG_TENSOR).value.tensor = borrow_optional(object, name, access);
    }
  }

  void add_value(const std::string& name, nb::handle object) {
    if (nb::isinstance<nb::float_>(object)) {
      append(name, AOTBUILD_ARG_REAL).value.real = nb::cast<double>(object);
    } else if (nb::isinstance<nb::int_>(object)) {
      append(name, AOTBUILD_ARG_INTEGER).value.integer = nb::cast<int64_t>(object);
    } else {
      const std::string type = nb::cast<std::string>(nb::str(object.type().attr("__name__")));
      throw nb::type_error((name + ": expected int or float, got " + type).c_str());
    }
  }

  std::deque<std::string> names_;  // a deque, so that c_str() stays valid while it grows
  std::vector<nb::object> held_;
  std::vector<aotbuild_arg> args_;
};

class Library {
 public:
  Library(const std::vector<std::string>& paths, bool paths_only,
          const std::vector<std::string>& wheel_paths) {
    const std::vector<const char*> given = pointers_to(paths);
    const std::vector<const char*> wheels = pointers_to(wheel_paths);
    aotbuild_open_options options = AOTBUILD_INIT(aotbuild_open_options);
    options.paths = given.data();
    options.path_count = given.size();
    options.paths_only = paths_only ? 1 : 0;
    options.wheel_paths = wheels.data();
    options.wheel_count = wheels.size();
    aotbuild_library* library = nullptr;
    call([&] { return aotbuild_open(&options, &library); });
    handle_ = std::make_shared<Handle>(library);
  }

  // Unloads once the calls in progress on other threads are done.
  void close() {
    if (handle_ != nullptr) handle_->close_at_end = true;
    handle_.reset();
  }

  std::vector<std::pair<std::string, std::string>> search_path() const {
    const std::shared_ptr<Handle> library = open_handle();
    std::vector<std::pair<std::string, std::string>> entries;
    for (;;) {
      const char* directory = nullptr;
      const char* origin = nullptr;
      call(
          [&] { return aotbuild_search_entry(library->get, entries.size(), &directory, &origin); });
      if (directory == nullptr) return entries;
      entries.emplace_back(directory, origin);
    }
  }

  std::string describe(const std::optional<std::string>& arch) {
    const std::shared_ptr<Handle> library = open_handle();
    const char* name = arch ? arch->c_str() : nullptr;
    std::string text;
    size_t needed = 1;
    // The packs on disk may change between two calls, hence a loop.
    while (needed > text.size()) {
      text.resize(needed);
      call(
          [&] { return aotbuild_describe(library->get, name, text.data(), text.size(), &needed); });
    }
    text.resize(needed - 1);
    return text;
  }

  void launch(const std::string& family, const std::string& op, const nb::dict& inputs,
              const nb::dict& outputs, const nb::dict& values, uintptr_t stream,
              const nb::object& workspace) {
    const std::shared_ptr<Handle> library = open_handle();
    const Arguments arguments(inputs, outputs, values);
    const Workspace memory(workspace);
    aotbuild_launch_args args = arguments.fill(family, op);
    args.stream = to_stream(stream);
    args.workspace = memory.data;
    args.workspace_size = memory.size;
    call([&] { return aotbuild_launch(library->get, &args); });
  }

  LaunchInfo query(const std::string& family, const std::string& op, const nb::dict& inputs,
                   const nb::dict& outputs, const nb::dict& values) {
    const std::shared_ptr<Handle> library = open_handle();
    const Arguments arguments(inputs, outputs, values);
    const aotbuild_launch_args args = arguments.fill(family, op);
    aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
    call([&] { return aotbuild_query(library->get, &args, &info); });
    return LaunchInfo(info);
  }

  void attention_forward(const nb::object& q, const nb::object& k, const nb::object& v,
                         const nb::object& out, const nb::object& lse, double scale,
                         int64_t window_left, int64_t window_right, int32_t window_align,
                         bool allow_tf32, uintptr_t stream) {
    const std::shared_ptr<Handle> library = open_handle();
    aotbuild_attention_forward_args args = AOTBUILD_INIT(aotbuild_attention_forward_args);
    args.q = borrow(q.ptr(), "q", Access::kRead);
    args.k = borrow(k.ptr(), "k", Access::kRead);
    args.v = borrow(v.ptr(), "v", Access::kRead);
    args.out = borrow(out.ptr(), "out", Access::kWrite);
    args.lse = borrow_optional(lse, "lse", Access::kWrite);
    fill_problem(&args, scale, window_left, window_right, window_align, allow_tf32);
    args.stream = to_stream(stream);
    call([&] { return aotbuild_attention_forward(library->get, &args); });
  }

  void attention_backward(const nb::object& q, const nb::object& k, const nb::object& v,
                          const nb::object& out, const nb::object& lse, const nb::object& dout,
                          const nb::object& dq, const nb::object& dk, const nb::object& dv,
                          double scale, int64_t window_left, int64_t window_right,
                          int32_t window_align, bool allow_tf32, uintptr_t stream,
                          const nb::object& workspace) {
    const std::shared_ptr<Handle> library = open_handle();
    const Workspace memory(workspace);
    aotbuild_attention_backward_args args = AOTBUILD_INIT(aotbuild_attention_backward_args);
    args.q = borrow(q.ptr(), "q", Access::kRead);
    args.k = borrow(k.ptr(), "k", Access::kRead);
    args.v = borrow(v.ptr(), "v", Access::kRead);
    args.out = borrow(out.ptr(), "out", Access::kRead);
    args.lse = borrow(lse.ptr(), "lse", Access::kRead);
    args.dout = borrow(dout.ptr(), "dout", Access::kRead);
    args.dq = borrow(dq.ptr(), "dq", Access::kWrite);
    args.dk = borrow(dk.ptr(), "dk", Access::kWrite);
    args.dv = borrow(dv.ptr(), "dv", Access::kWrite);
    fill_problem(&args, scale, window_left, window_right, window_align, allow_tf32);
    args.stream = to_stream(stream);
    args.workspace = memory.data;
    args.workspace_size = memory.size;
    call([&] { return aotbuild_attention_backward(library->get, &args); });
  }

 private:
  static std::vector<const char*> pointers_to(const std::vector<std::string>& paths) {
    std::vector<const char*> pointers;
    for (const std::string& path : paths) pointers.push_back(path.c_str());
    return pointers;
  }

  // Images of a library that was not closed stay loaded until the process ends: unloading them
  // when Python happens to collect it could pull code from under a kernel that still runs.
  struct Handle {
    explicit Handle(aotbuild_library* library) : get(library) {}
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle() {
      if (close_at_end) aotbuild_close(get);
    }
    aotbuild_library* get;
    bool close_at_end = false;
  };

  template <class Args>
  static void fill_problem(Args* args, double scale, int64_t window_left, int64_t window_right,
                           int32_t window_align, bool allow_tf32) {
    args->scale = scale;
    args->window_left = window_left;
    args->window_right = window_right;
    args->window_align = window_align;
    args->allow_tf32 = allow_tf32 ? 1 : 0;
  }

  std::shared_ptr<Handle> open_handle() const {
    if (handle_ == nullptr) throw std::invalid_argument("the library is closed");
    return handle_;
  }

  std::shared_ptr<Handle> handle_;
};

std::string device_arch(int32_t device_type, int32_t device_id) {
  char arch[kArchSize] = {};
  call([&] { return aotbuild_device_arch(device_type, device_id, arch, sizeof(arch)); });
  return arch;
}

// File of the libaotbuild that this module is bound to.
std::string library_file() {
  Dl_info info;
  const auto* function = reinterpret_cast<const void*>(&aotbuild_version);
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

void bind_launch_info(nb::module_& m) {
  nb::class_<LaunchInfo>(m, "LaunchInfo", "What a call would run.")
      .def_ro("pack", &LaunchInfo::pack, "Path of the pack.")
      .def_ro("image", &LaunchInfo::image, "Name of the image, empty if nothing would be launched.")
      .def_ro("workspace_size", &LaunchInfo::workspace_size, "Bytes of device memory to pass in.")
      .def_ro("workspace_align", &LaunchInfo::workspace_align, "Alignment of it, bytes.")
      .def_ro("grid", &LaunchInfo::grid, "Blocks in x, y and z.")
      .def_ro("threads", &LaunchInfo::threads, "Threads of a block.")
      .def_ro("shared_bytes", &LaunchInfo::shared_bytes, "Dynamic shared memory (LDS) of a block.")
      .def_ro("registers", &LaunchInfo::registers, "Registers of a thread, 0 when unknown.");
}

void bind_library(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<Library>(m, "Library")
      .def(nb::init<const std::vector<std::string>&, bool, const std::vector<std::string>&>(),
           "paths"_a, "paths_only"_a, "wheel_paths"_a)
      .def("close", &Library::close)
      .def("search_path", &Library::search_path)
      .def("describe", &Library::describe, "arch"_a.none())
      .def("launch", &Library::launch, "family"_a, "op"_a, "inputs"_a, "outputs"_a, "values"_a,
           "stream"_a, "workspace"_a.none())
      .def("query", &Library::query, "family"_a, "op"_a, "inputs"_a, "outputs"_a, "values"_a)
      .def("attention_forward", &Library::attention_forward, "q"_a, "k"_a, "v"_a, "out"_a,
           "lse"_a.none(), "scale"_a, "window_left"_a, "window_right"_a, "window_align"_a,
           "allow_tf32"_a, "stream"_a)
      .def("attention_backward", &Library::attention_backward, "q"_a, "k"_a, "v"_a, "out"_a,
           "lse"_a, "dout"_a, "dq"_a, "dk"_a, "dv"_a, "scale"_a, "window_left"_a, "window_right"_a,
           "window_align"_a, "allow_tf32"_a, "stream"_a, "workspace"_a.none());
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The C ABI of the runtime. Use aotbuild.runtime.";
#ifdef NDEBUG
  // nanobind takes an object that outlives the interpreter for a fault in these bindings. A library
  // may: a daemon thread or another extension holds one, and its images stay loaded by contract.
  nb::set_leak_warnings(false);
#endif
  m.attr("UNLIMITED") = AOTBUILD_UNLIMITED;
  m.attr("ALIGN_UPPER_LEFT") = static_cast<int>(AOTBUILD_ALIGN_UPPER_LEFT);
  m.attr("ALIGN_LOWER_RIGHT") = static_cast<int>(AOTBUILD_ALIGN_LOWER_RIGHT);
  m.def("version", &aotbuild_version);
  m.def("abi_version", &aotbuild_abi_version);
  m.def("library_file", &library_file);
  m.def("status_name", &aotbuild_status_name, nb::arg("status"));
  m.def("device_arch", &device_arch, nb::arg("device_type"), nb::arg("device_id"));
  bind_launch_info(m);
  bind_library(m);
}
