#include "launch.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "arguments.h"
#include "dispatch.h"
#include "driver.h"
#include "error.h"
#include "library.h"
#include "text.h"

namespace aotbuild {
namespace {

// What serves a call, and how it would be launched.
struct Plan {
  DeviceState& device;
  DevicePack& device_pack;
  const Pack& pack;
  const format::Image& image;
  Grid grid;  // programs
};

struct WorkspaceLayout {
  uint64_t profile_offset = 0;  // global scratch comes first
  uint64_t size = 0;
  uint64_t align = 1;
};

std::string image_text(const Plan& plan) {
  return "image " + std::string(plan.pack.string(plan.image.name)) + " of " + plan.pack.path();
}

void check_contract(const LaunchRequest& request, const Pack& pack, const format::Operator& op) {
  if (request.contract == kAnyContract || op.contract == request.contract) return;
  throw Error(AOTBUILD_ERROR_CONTRACT,
              pack.path() + " holds contract " + std::to_string(op.contract) + " of " +
                  std::string(request.family) + "." + std::string(request.op) +
                  "; this library (aotbuild " + aotbuild_version() + ") calls contract " +
                  std::to_string(request.contract) +
                  ". Use a pack and a library of the same aotbuild version");
}

void check_vendor(const Pack& pack, int32_t device_type) {
  const auto wanted = device_type == kDeviceCuda ? format::Vendor::kCuda : format::Vendor::kHip;
  if (pack.vendor() == wanted) return;
  throw Error(AOTBUILD_ERROR_PACK_ARCH,
              pack.path() + " is for " + (wanted == format::Vendor::kCuda ? "HIP" : "CUDA") +
                  " devices, but the tensors are on a " +
                  (wanted == format::Vendor::kCuda ? "CUDA" : "ROCm") + " device");
}

[[noreturn]] void throw_no_image(const LaunchRequest& request, const std::string& arch,
                                 const std::string& why) {
  throw Error(AOTBUILD_ERROR_NO_IMAGE,
              "no pack for " + arch + " holds an image of " + std::string(request.family) + "." +
                  std::string(request.op) + " for this call:" + why +
                  "\nA fuller pack may: `aotbuild compile --arch " + arch + " --family " +
                  std::string(request.family) + " --profile standard`");
}

// Names that the operator's columns and images ask for and the call does not pass: "'a', 'b'".
std::string missing_names(const Pack& pack, const format::Operator& op, const Call& call) {
  std::string missing;
  const auto look = [&](const auto& records) {
    for (const auto& record : records) {
      if (record.source_name == 0) continue;
      const std::string_view name = pack.string(record.source_name);
      const bool given =
          record.source_kind == format::SourceKind::kValue
              ? call.value(name) != nullptr
              : std::any_of(call.tensors().begin(), call.tensors().end(),
                            [&](const NamedTensor& tensor) { return tensor.name == name; });
      if (given || missing.find(quoted(name)) != std::string::npos) continue;
      missing += (missing.empty() ? "" : ", ") + quoted(name);
    }
  };
  look(pack.columns(op));
  for (const format::Row& row : pack.rows(op)) {
    if (row.image == format::kNone) continue;
    look(pack.arguments(pack.images()[row.image]));
    look(pack.factors(pack.images()[row.image]));
  }
  return missing;
}

// What was found missing first says little about a pack of another version; all of it says more.
[[noreturn]] void throw_contract(const Error& error, const Pack& pack, const format::Operator& op,
                                 const Call& call) {
  const std::string missing = missing_names(pack, op, call);
  throw Error(AOTBUILD_ERROR_CONTRACT,
              pack.path() + ": " +
                  (missing.empty() ? error.message()
                                   : "operator " + quoted(pack.string(op.name)) + " asks for " +
                                         missing + ", which the call does not pass") +
                  ". Use a pack and a caller of the same version");
}

// The first candidate with an image for the call wins.
Plan plan_launch(aotbuild_library& library, const LaunchRequest& request) {
  const Call::Device where = request.call.device();
  DeviceState& device = library.device(where.type, where.id);
  std::string why;
  for (const auto& device_pack : library.family(device, request.family).packs) {
    const Pack& pack = device_pack->candidate.pack();
    check_vendor(pack, where.type);
    const format::Operator* op = pack.find_operator(request.op);
    if (op == nullptr) {
      why += "\n  " + pack.path() + ": has no operator " + quoted(request.op);
      continue;
    }
    check_contract(request, pack, *op);
    validate_call(pack, *op, request.call);
    std::string reason;
    try {
      if (const format::Image* image = dispatch(pack, *op, request.call, &reason)) {
        return {device, *device_pack, pack, *image,
                grid_of(pack, *image, request.call, device.info.multiprocessors)};
      }
    } catch (const Error& error) {
      if (error.status() != AOTBUILD_ERROR_CONTRACT) throw;
      throw_contract(error, pack, *op, request.call);
    }
    why += "\n  " + pack.path() + ": " + reason;
  }
  throw_no_image(request, device.info.arch, why);
}

[[noreturn]] void throw_too_large(const Plan& plan, const char* what) {
  throw Error(AOTBUILD_ERROR_UNSUPPORTED, image_text(plan) + " needs " + what +
                                              " beyond what can be addressed. Split the call");
}

LaunchConfig launch_config(const Plan& plan) {
  const format::Image& image = plan.image;
  const DeviceInfo& info = plan.device.info;
  if (image.shared > info.max_shared) {
    throw Error(AOTBUILD_ERROR_UNSUPPORTED,
                image_text(plan) + " needs " + std::to_string(image.shared) +
                    " bytes of shared memory a block; the device (" + info.arch + ") has " +
                    std::to_string(info.max_shared));
  }
  const bool cooperative = (image.flags & format::kCooperative) != 0;
  if (cooperative && !info.cooperative) {
    throw Error(AOTBUILD_ERROR_UNSUPPORTED, image_text(plan) +
                                                " needs a cooperative launch, which the device (" +
                                                info.arch + ") does not support");
  }
  const uint64_t blocks = uint64_t{plan.grid.x} * image.num_ctas;
  if (blocks > uint64_t{std::numeric_limits<int32_t>::max()}) throw_too_large(plan, "a grid");
  return {{static_cast<uint32_t>(blocks), plan.grid.y, plan.grid.z},
          image.threads,
          image.shared,
          {image.cluster[0], image.cluster[1], image.cluster[2]},
          cooperative,
          (image.flags & format::kProgrammatic) != 0};
}

uint64_t multiply(const Plan& plan, uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw_too_large(plan, "a workspace");
  return product;
}

WorkspaceLayout workspace_layout(const Plan& plan) {
  const format::Image& image = plan.image;
  WorkspaceLayout layout;
  if (image.global_scratch == 0 && image.profile_scratch == 0) return layout;
  uint64_t programs = multiply(plan, uint64_t{plan.grid.x} * plan.grid.y, plan.grid.z);
  // On HIP the blocks of a cluster share their program's scratch.
  if (plan.pack.vendor() == format::Vendor::kCuda) {
    programs = multiply(plan, programs, image.num_ctas);
  }
  const uint64_t global_align = std::max<uint64_t>(image.global_scratch_align, 1);
  const uint64_t profile_align = std::max<uint64_t>(image.profile_scratch_align, 1);
  const uint64_t global_size = multiply(plan, programs, image.global_scratch);
  const uint64_t profile_size = multiply(plan, programs, image.profile_scratch);
  layout.size = global_size;
  if (image.global_scratch != 0) layout.align = global_align;
  if (image.profile_scratch != 0) {
    layout.profile_offset =
        multiply(plan, global_size / profile_align + (global_size % profile_align != 0 ? 1 : 0),
                 profile_align);
    layout.align = std::max(layout.align, profile_align);
    if (__builtin_add_overflow(layout.profile_offset, profile_size, &layout.size)) {
      throw_too_large(plan, "a workspace");
    }
  }
  return layout;
}

Scratch place_scratch(const Plan& plan, const WorkspaceLayout& layout,
                      const LaunchRequest& request) {
  Scratch scratch;
  if (layout.size == 0) return scratch;
  const auto address = reinterpret_cast<uintptr_t>(request.workspace);
  if (address == 0 || request.workspace_size < layout.size || address % layout.align != 0) {
    throw Error(AOTBUILD_ERROR_WORKSPACE,
                image_text(plan) + " needs a workspace of " + std::to_string(layout.size) +
                    " bytes aligned to " + std::to_string(layout.align) + "; got " +
                    std::to_string(request.workspace_size) + " bytes at address " +
                    std::to_string(address) + ". The query function of the call tells the size");
  }
  if (plan.image.global_scratch != 0) scratch.global = address;
  if (plan.image.profile_scratch != 0) scratch.profile = address + layout.profile_offset;
  return scratch;
}

}  // namespace

PreparedLaunch::PreparedLaunch(aotbuild_library& library, const LaunchRequest& request)
    : config_(), stream_(request.stream) {
  const Plan plan = plan_launch(library, request);
  device_ = &plan.device;
  if (plan.grid.empty()) return;
  config_ = launch_config(plan);
  const Scratch scratch = place_scratch(plan, workspace_layout(plan), request);
  arguments_.emplace(plan.pack, plan.image, request.call, scratch, plan.device.driver);
  kernel_ = &load_image(plan.device, plan.device_pack, plan.image, request.stream);
}

void PreparedLaunch::launch() {
  if (!arguments_.has_value()) return;
  device_->driver.launch(device_->id, stream_, *kernel_, config_, arguments_->data());
}

void query(aotbuild_library& library, const LaunchRequest& request, aotbuild_launch_info* info) {
  const Plan plan = plan_launch(library, request);
  info->pack = plan.pack.path().c_str();
  info->image = "";
  info->workspace_align = 1;
  if (plan.grid.empty()) return;
  const LaunchConfig config = launch_config(plan);
  const WorkspaceLayout layout = workspace_layout(plan);
  // What launch() would refuse is refused here, too.
  static_cast<void>(Arguments(plan.pack, plan.image, request.call, Scratch(), plan.device.driver));
  info->image = plan.pack.string(plan.image.name).data();
  info->workspace_size = layout.size;
  info->workspace_align = layout.align;
  std::copy(std::begin(config.grid), std::end(config.grid), std::begin(info->grid));
  info->threads = config.threads;
  info->shared_bytes = config.shared;
  info->registers = plan.image.registers;
}

}  // namespace aotbuild
