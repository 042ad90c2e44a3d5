// The C ABI: checks pointers and struct sizes, and turns exceptions into a status and a message.
#include <cstddef>
#include <cstring>
#include <new>
#include <string>

#include "aotbuild/aotbuild.h"
#include "attention.h"
#include "driver.h"
#include "error.h"
#include "launch.h"
#include "library.h"
#include "text.h"

namespace aotbuild {
namespace {

// The calling thread's last message. `text` is kept apart from `storage` for when there is no
// memory left to say so.
struct LastError {
  std::string storage;
  const char* text = "";
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

aotbuild_status fail(aotbuild_status status, const char* message) noexcept {
  LastError& last = last_error();
  try {
    last.storage = message;
    last.text = last.storage.c_str();
  } catch (const std::bad_alloc&) {
    last.text = "out of host memory while reporting an error";
  }
  return status;
}

template <class Body>
aotbuild_status guarded(const Body& body) noexcept {
  try {
    body();
    return AOTBUILD_OK;
  } catch (const Error& error) {
    return fail(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(AOTBUILD_ERROR_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& error) {
    return fail(AOTBUILD_ERROR_INTERNAL, error.what());
  } catch (...) {
    return fail(AOTBUILD_ERROR_INTERNAL, "an exception of unknown type");
  }
}

template <class T>
void require(const T* pointer, const char* name) {
  if (pointer == nullptr) {
    throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT, std::string(name) + " is null");
  }
}

// Sizes that a struct has had in released versions are known. All have had one, except
// aotbuild_open_options.
template <class T>
void require_struct(const T* value, const char* name) {
  require(value, name);
  if (value->struct_size != sizeof(T)) {
    throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT,
                std::string(name) + "->struct_size is " + std::to_string(value->struct_size) +
                    "; this library (aotbuild " + aotbuild_version() + ") knows " +
                    std::to_string(sizeof(T)) +
                    ". Set it with AOTBUILD_INIT, and use header and library of one version");
  }
}

// The options as they are today: those of a caller who knows only the first fields are completed.
aotbuild_open_options complete(const aotbuild_open_options& given) {
  aotbuild_open_options options = AOTBUILD_INIT(aotbuild_open_options);
  constexpr size_t kFirstSize = offsetof(aotbuild_open_options, wheel_paths);
  if (given.struct_size != kFirstSize) require_struct(&given, "options");
  std::memcpy(&options, &given, given.struct_size);
  options.struct_size = sizeof(options);
  return options;
}

void check_paths(const char* const* paths, size_t count, const std::string& name) {
  if (count != 0) require(paths, name.c_str());
  for (size_t i = 0; i < count; ++i) {
    const std::string entry = name + "[" + std::to_string(i) + "]";
    require(paths[i], entry.c_str());
    if (*paths[i] == '\0') {
      throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT, entry + " is empty; expected a directory");
    }
  }
}

void check_options(const aotbuild_open_options& options) {
  check_paths(options.paths, options.path_count, "options->paths");
  check_paths(options.wheel_paths, options.wheel_count, "options->wheel_paths");
  if (options.paths_only != 0 && options.paths_only != 1) {
    throw Error(
        AOTBUILD_ERROR_INVALID_ARGUMENT,
        "options->paths_only is " + std::to_string(options.paths_only) + "; expected 0 or 1");
  }
}

[[noreturn]] void fail_argument(size_t index, const std::string& what) {
  throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT, "args->args[" + std::to_string(index) + "]" + what);
}

void add_argument(Call* call, const aotbuild_arg& arg, size_t index) {
  if (arg.name == nullptr) fail_argument(index, ".name is null");
  switch (arg.kind) {
    case AOTBUILD_ARG_TENSOR:
      return call->add(arg.name, arg.value.tensor);
    case AOTBUILD_ARG_INTEGER:
      return call->add(arg.name, arg.value.integer);
    case AOTBUILD_ARG_REAL:
      return call->add(arg.name, arg.value.real);
    default:
      fail_argument(index, " (" + std::string(arg.name) + ") has kind " + std::to_string(arg.kind) +
                               "; expected AOTBUILD_ARG_TENSOR, _INTEGER or _REAL");
  }
}

template <class Run>
void with_request(const aotbuild_library* library, const aotbuild_launch_args* args,
                  const Run& run) {
  require(library, "library");
  require_struct(args, "args");
  require(args->family, "args->family");
  require(args->op, "args->op");
  if (args->arg_count != 0) require(args->args, "args->args");
  Call call;
  for (size_t i = 0; i < args->arg_count; ++i) add_argument(&call, args->args[i], i);
  run(LaunchRequest{args->family, args->op, kAnyContract, call, args->stream, args->workspace,
                    args->workspace_size});
}

// Filled by `run` only when it succeeds.
template <class Run>
void with_info(aotbuild_launch_info* info, const Run& run) {
  require_struct(info, "info");
  aotbuild_launch_info result = AOTBUILD_INIT(aotbuild_launch_info);
  run(&result);
  *info = result;
}

const char* status_name(aotbuild_status status) {
  switch (status) {
#define AOTBUILD_NAME(name) \
  case name:                \
    return #name;
    AOTBUILD_NAME(AOTBUILD_OK)
    AOTBUILD_NAME(AOTBUILD_ERROR_INVALID_ARGUMENT)
    AOTBUILD_NAME(AOTBUILD_ERROR_UNSUPPORTED)
    AOTBUILD_NAME(AOTBUILD_ERROR_NO_PACK)
    AOTBUILD_NAME(AOTBUILD_ERROR_NO_IMAGE)
    AOTBUILD_NAME(AOTBUILD_ERROR_PACK_CORRUPT)
    AOTBUILD_NAME(AOTBUILD_ERROR_PACK_VERSION)
    AOTBUILD_NAME(AOTBUILD_ERROR_PACK_ARCH)
    AOTBUILD_NAME(AOTBUILD_ERROR_CONTRACT)
    AOTBUILD_NAME(AOTBUILD_ERROR_NO_DRIVER)
    AOTBUILD_NAME(AOTBUILD_ERROR_DRIVER)
    AOTBUILD_NAME(AOTBUILD_ERROR_IO)
    AOTBUILD_NAME(AOTBUILD_ERROR_OUT_OF_MEMORY)
    AOTBUILD_NAME(AOTBUILD_ERROR_WORKSPACE)
    AOTBUILD_NAME(AOTBUILD_ERROR_INTERNAL)
#undef AOTBUILD_NAME
    default:
      return "unknown status";
  }
}

// Copies with the final NUL; `*needed` is what the whole takes. Cuts what does not fit.
void copy_text(const std::string& text, char* out, size_t size, size_t* needed) {
  *needed = text.size() + 1;
  if (size == 0) return;
  require(out, "text");
  const size_t count = text.size() < size ? text.size() : size - 1;
  std::memcpy(out, text.data(), count);
  out[count] = '\0';
}

}  // namespace
}  // namespace aotbuild

using namespace aotbuild;  // NOLINT(google-build-using-namespace): the functions below are C

const char* aotbuild_version(void) { return AOTBUILD_VERSION_STRING; }

int32_t aotbuild_abi_version(void) { return AOTBUILD_ABI_VERSION; }

const char* aotbuild_status_name(aotbuild_status status) { return status_name(status); }

const char* aotbuild_last_error(void) { return last_error().text; }

aotbuild_status aotbuild_open(const aotbuild_open_options* options, aotbuild_library** library) {
  return guarded([&] {
    require(library, "library");
    *library = nullptr;
    if (options == nullptr) {
      *library = new aotbuild_library(nullptr);
      return;
    }
    const aotbuild_open_options completed = complete(*options);
    check_options(completed);
    *library = new aotbuild_library(&completed);
  });
}

void aotbuild_close(aotbuild_library* library) { delete library; }

aotbuild_status aotbuild_search_entry(const aotbuild_library* library, size_t index,
                                      const char** directory, const char** origin) {
  return guarded([&] {
    require(library, "library");
    require(directory, "directory");
    require(origin, "origin");
    const auto& entries = library->search_path();
    const SearchEntry* entry = index < entries.size() ? &entries[index] : nullptr;
    *directory = entry == nullptr ? nullptr : entry->directory.c_str();
    *origin = entry == nullptr ? nullptr : entry->origin.c_str();
  });
}

aotbuild_status aotbuild_describe(aotbuild_library* library, const char* arch, char* text,
                                  size_t size, size_t* needed) {
  return guarded([&] {
    require(library, "library");
    require(needed, "needed");
    copy_text(library->describe(arch), text, size, needed);
  });
}

aotbuild_status aotbuild_device_arch(int32_t device_type, int32_t device_id, char* arch,
                                     size_t size) {
  return guarded([&] {
    require(arch, "arch");
    const std::string name = Driver::of(device_type).device(device_id).arch;
    if (name.size() >= size) {
      throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT, "size is " + std::to_string(size) +
                                                       "; the arch " + quoted(name) + " takes " +
                                                       std::to_string(name.size() + 1));
    }
    std::memcpy(arch, name.c_str(), name.size() + 1);
  });
}

aotbuild_status aotbuild_launch(aotbuild_library* library, const aotbuild_launch_args* args) {
  return guarded([&] {
    with_request(library, args, [&](const LaunchRequest& request) { launch(*library, request); });
  });
}

aotbuild_status aotbuild_query(aotbuild_library* library, const aotbuild_launch_args* args,
                               aotbuild_launch_info* info) {
  return guarded([&] {
    with_info(info, [&](aotbuild_launch_info* result) {
      with_request(library, args,
                   [&](const LaunchRequest& request) { query(*library, request, result); });
    });
  });
}

namespace {

template <class Args>
aotbuild_status run_attention(aotbuild_library* library, const Args* args) {
  return guarded([&] {
    require(library, "library");
    require_struct(args, "args");
    attention(*library, *args);
  });
}

template <class Args>
aotbuild_status query_attention(aotbuild_library* library, const Args* args,
                                aotbuild_launch_info* info) {
  return guarded([&] {
    require(library, "library");
    require_struct(args, "args");
    with_info(info,
              [&](aotbuild_launch_info* result) { attention_query(*library, *args, result); });
  });
}

}  // namespace

aotbuild_status aotbuild_attention_forward(aotbuild_library* library,
                                           const aotbuild_attention_forward_args* args) {
  return run_attention(library, args);
}

aotbuild_status aotbuild_attention_forward_query(aotbuild_library* library,
                                                 const aotbuild_attention_forward_args* args,
                                                 aotbuild_launch_info* info) {
  return query_attention(library, args, info);
}

aotbuild_status aotbuild_attention_backward(aotbuild_library* library,
                                            const aotbuild_attention_backward_args* args) {
  return run_attention(library, args);
}

aotbuild_status aotbuild_attention_backward_query(aotbuild_library* library,
                                                  const aotbuild_attention_backward_args* args,
                                                  aotbuild_launch_info* info) {
  return query_attention(library, args, info);
}
