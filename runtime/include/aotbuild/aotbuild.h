/* aotbuild runtime, C ABI. This header is the contract.
 *
 * The runtime finds the pack of a device's architecture, picks the image that serves a call,
 * verifies and loads it once per device, and launches it on the caller's stream. It allocates
 * no device memory and synchronises nothing.
 *
 * Conventions
 *  - Every function returns an aotbuild_status unless stated; numbers are pinned for ever.
 *  - On failure aotbuild_last_error() tells, for the calling thread, what was looked for, where,
 *    and what to do. A failed call has launched nothing and written no output.
 *  - A struct starts with its size: set it with AOTBUILD_INIT. Fields are only ever appended;
 *    a size the library does not know is refused.
 *  - All functions are thread-safe, except that a library must not be closed while in use.
 *  - No function keeps a pointer that it was given beyond its return.
 */
#ifndef AOTBUILD_AOTBUILD_H_
#define AOTBUILD_AOTBUILD_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define AOTBUILD_API
#else
#define AOTBUILD_API __attribute__((visibility("default")))
#endif

/* ABI number: the soname. Grows only when the meaning of something here changes. */
#define AOTBUILD_ABI_VERSION 0

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t aotbuild_status;
enum {
  AOTBUILD_OK = 0,
  AOTBUILD_ERROR_INVALID_ARGUMENT = 1, /* a null, a wrong shape, dtype, stride or device */
  AOTBUILD_ERROR_UNSUPPORTED = 2,  /* understood, but this device, driver or pack cannot do it */
  AOTBUILD_ERROR_NO_PACK = 3,      /* no pack for the device's arch on the search path */
  AOTBUILD_ERROR_NO_IMAGE = 4,     /* packs were found; none holds an image for this call */
  AOTBUILD_ERROR_PACK_CORRUPT = 5, /* truncated, damaged or inconsistent */
  AOTBUILD_ERROR_PACK_VERSION = 6, /* a format version this runtime does not read */
  AOTBUILD_ERROR_PACK_ARCH = 7,    /* the pack, or a code object in it, is for another arch */
  AOTBUILD_ERROR_CONTRACT = 8,     /* pack and runtime disagree about an operator's parameters */
  AOTBUILD_ERROR_NO_DRIVER = 9,    /* libcuda / libamdhip64 absent or too old */
  AOTBUILD_ERROR_DRIVER = 10,      /* the driver reported an error; the message carries its code */
  AOTBUILD_ERROR_IO = 11,          /* a file could not be opened, read or mapped */
  AOTBUILD_ERROR_OUT_OF_MEMORY = 12, /* host memory */
  AOTBUILD_ERROR_WORKSPACE = 13,     /* the workspace is missing, too small or misaligned */
  AOTBUILD_ERROR_INTERNAL = 14       /* a defect of aotbuild; please report the message */
};

/* Version of the library, "0.1.0". Never null. */
AOTBUILD_API const char* aotbuild_version(void);
/* AOTBUILD_ABI_VERSION of the library that is loaded. */
AOTBUILD_API int32_t aotbuild_abi_version(void);
/* "AOTBUILD_OK" and so on; "unknown status" for other numbers. Never null. */
AOTBUILD_API const char* aotbuild_status_name(aotbuild_status status);
/* Message of the calling thread's last failed call, "" if none; valid until that thread's next
 * failed call. Never null. */
AOTBUILD_API const char* aotbuild_last_error(void);

/* DLPack's DLTensor, field for field (a test freezes this against dlpack.h), so that neither
 * building nor using the runtime needs that header: cast a `const DLTensor*`.
 * device_type: 2 CUDA, 10 ROCm. dtype codes: 0 int, 1 uint, 2 float, 4 bfloat.
 * strides are in elements; null means compact row-major. */
typedef struct aotbuild_tensor {
  void* data;
  struct {
    int32_t device_type;
    int32_t device_id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
  } dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} aotbuild_tensor;

/* A CUstream / cudaStream_t / hipStream_t. Null is the device's default stream. */
typedef void* aotbuild_stream;

/* ---- Library: a search path and all that was loaded through it ------------------------------ */

typedef struct aotbuild_library aotbuild_library;

typedef struct aotbuild_open_options {
  size_t struct_size;
  /* Directories searched before all others, each holding `<arch>/<family>.aotpack`. May be null
   * when path_count is 0. The rest of the search path, in order: AOTBUILD_IMAGE_PATH (entries
   * separated by ':'), `aotbuild.images/` beside the real file of this library,
   * `<prefix>/share/aotbuild/images` of the prefix it is installed in, `wheel_paths`, and
   * `${XDG_DATA_HOME:-~/.local/share}/aotbuild/images`. */
  const char* const* paths;
  size_t path_count;
  /* 1: search `paths` only. */
  int32_t paths_only;
  int32_t reserved;
  /* Directories of image wheels, which only Python can tell; null when wheel_count is 0. A struct
   * that ends before these two fields is taken, too. */
  const char* const* wheel_paths;
  size_t wheel_count;
} aotbuild_open_options;

/* Makes a library. `options` may be null. Reads no pack and touches no driver: both happen at the
 * first call for a device. The caller owns *library and ends it with aotbuild_close.
 * Returns INVALID_ARGUMENT, OUT_OF_MEMORY. */
AOTBUILD_API aotbuild_status aotbuild_open(const aotbuild_open_options* options,
                                           aotbuild_library** library);
/* Unloads every image. Launches already on a stream must have completed. Null is allowed. */
AOTBUILD_API void aotbuild_close(aotbuild_library* library);

/* Entry `index` of the search path, from 0: a directory, which need not exist, and what put it
 * there ("AOTBUILD_IMAGE_PATH", "home directory"). Beyond the last entry both are null. The strings
 * live as long as the library. Returns INVALID_ARGUMENT. */
AOTBUILD_API aotbuild_status aotbuild_search_entry(const aotbuild_library* library, size_t index,
                                                   const char** directory, const char** origin);

/* Text of the search path and of the packs found for `arch` ("sm_90", or null for none), one
 * item a line, with the reason where a pack cannot be used. Writes at most `size` bytes with the
 * final NUL and sets *needed to the bytes the whole text takes. */
AOTBUILD_API aotbuild_status aotbuild_describe(aotbuild_library* library, const char* arch,
                                               char* text, size_t size, size_t* needed);

/* Arch of a device as packs name it ("sm_90", "gfx942"), by DLPack device type and number.
 * Writes a NUL-terminated name into `arch` of `size` bytes (32 suffice).
 * Returns NO_DRIVER, DRIVER, INVALID_ARGUMENT. */
AOTBUILD_API aotbuild_status aotbuild_device_arch(int32_t device_type, int32_t device_id,
                                                  char* arch, size_t size);

/* ---- Any operator of any pack --------------------------------------------------------------- */

enum {
  AOTBUILD_ARG_TENSOR = 1,  /* value.tensor; null for an optional tensor that is absent */
  AOTBUILD_ARG_INTEGER = 2, /* value.integer */
  AOTBUILD_ARG_REAL = 3     /* value.real */
};

typedef struct aotbuild_arg {
  const char* name; /* as the operator's description calls it */
  int32_t kind;
  int32_t reserved;
  union {
    const aotbuild_tensor* tensor;
    int64_t integer;
    double real;
  } value;
} aotbuild_arg;

typedef struct aotbuild_launch_args {
  size_t struct_size;
  const char* family; /* "attention" */
  const char* op;     /* "forward" */
  const aotbuild_arg* args;
  size_t arg_count;
  aotbuild_stream stream;
  /* Device memory for the launch, private to it until it has completed; null when none is
   * needed (aotbuild_query says). */
  void* workspace;
  size_t workspace_size;
} aotbuild_launch_args;

/* What a call would run. Strings live as long as the library. */
typedef struct aotbuild_launch_info {
  size_t struct_size;
  const char* pack;        /* path of the pack */
  const char* image;       /* name of the image; "" when there is nothing to compute */
  uint64_t workspace_size; /* bytes, aligned to workspace_align */
  uint64_t workspace_align;
  uint32_t grid[3];
  uint32_t threads;
  uint32_t shared_bytes;
  uint32_t registers; /* 0 when unknown */
} aotbuild_launch_info;

/* Validates, dispatches, loads and launches. The device is the tensors'; all must agree, and the
 * stream must belong to it. A call whose grid is empty launches nothing and returns OK.
 * Returns any status. */
AOTBUILD_API aotbuild_status aotbuild_launch(aotbuild_library* library,
                                             const aotbuild_launch_args* args);
/* The same up to, and without, loading and launching. */
AOTBUILD_API aotbuild_status aotbuild_query(aotbuild_library* library,
                                            const aotbuild_launch_args* args,
                                            aotbuild_launch_info* info);

/* ---- Attention ------------------------------------------------------------------------------ */

/* No bound on this side of the window. */
#define AOTBUILD_UNLIMITED INT64_MAX

enum {
  AOTBUILD_ALIGN_UPPER_LEFT = 0, /* query i stands at key i */
  AOTBUILD_ALIGN_LOWER_RIGHT = 1 /* query i stands at key i + seqlen_k - seqlen_q */
};

/* out = softmax(scale * q k^T + mask) v
 *
 * q, out  (B, Hq, Sq, D)    k, v  (B, Hk, Sk, D)    lse  (B, Hq, Sq) float32, or null
 * Hq is a multiple of Hk: query head h reads key head h / (Hq / Hk). 1 <= D <= 256; B, Sq and
 * Sk may be 0. q, k, v and out share one dtype: float16, bfloat16 or float32. Any strides >= 0
 * with the last dimension contiguous (lse: compact in its last dimension); out and lse must
 * not overlap themselves or the inputs.
 *
 * Query i, standing at key p(i) by window_align, sees key j when
 *     p(i) - window_left <= j <= p(i) + window_right.
 * Causal attention is window_left = AOTBUILD_UNLIMITED, window_right = 0. Bounds are >= 0.
 *
 * lse is the natural logarithm of the sum of exp(scale * q k^T) over the visible keys. A row
 * that sees no key has out 0 and lse -infinity.
 * float32 is computed in IEEE float32 unless allow_tf32 is 1 and the arch has such units. */
typedef struct aotbuild_attention_forward_args {
  size_t struct_size;
  const aotbuild_tensor* q;
  const aotbuild_tensor* k;
  const aotbuild_tensor* v;
  const aotbuild_tensor* out;
  const aotbuild_tensor* lse;
  double scale; /* finite; usually 1 / sqrt(D) */
  int64_t window_left;
  int64_t window_right;
  int32_t window_align;
  int32_t allow_tf32;
  aotbuild_stream stream;
  void* workspace;
  size_t workspace_size;
} aotbuild_attention_forward_args;

AOTBUILD_API aotbuild_status
aotbuild_attention_forward(aotbuild_library* library, const aotbuild_attention_forward_args* args);
AOTBUILD_API aotbuild_status aotbuild_attention_forward_query(
    aotbuild_library* library, const aotbuild_attention_forward_args* args,
    aotbuild_launch_info* info);

/* Gradients dq, dk, dv of a scalar with respect to q, k and v, from dout, its gradient with respect
 * to out, and from out and lse as aotbuild_attention_forward wrote them. scale, window and
 * allow_tf32 are those of that call.
 *
 * dout, dq (B, Hq, Sq, D)    dk, dv (B, Hk, Sk, D), summed over the query heads that read them.
 * They share the dtype of q. Strides as in forward; dq, dk and dv overlap nothing. All of dq, dk
 * and dv is written: rows that see no key and keys that no row sees get 0.
 *
 * Equal calls give equal bits on one device. Launches three kernels, one after the other. The query
 * function tells the workspace, which holds B * Hq * Sq floats and what scratch the kernels need;
 * its other fields are of the kernel that makes dk and dv. */
typedef struct aotbuild_attention_backward_args {
  size_t struct_size;
  const aotbuild_tensor* q;
  const aotbuild_tensor* k;
  const aotbuild_tensor* v;
  const aotbuild_tensor* out;
  const aotbuild_tensor* lse;
  const aotbuild_tensor* dout;
  const aotbuild_tensor* dq;
  const aotbuild_tensor* dk;
  const aotbuild_tensor* dv;
  double scale;
  int64_t window_left;
  int64_t window_right;
  int32_t window_align;
  int32_t allow_tf32;
  aotbuild_stream stream;
  void* workspace;
  size_t workspace_size;
} aotbuild_attention_backward_args;

AOTBUILD_API aotbuild_status aotbuild_attention_backward(
    aotbuild_library* library, const aotbuild_attention_backward_args* args);
AOTBUILD_API aotbuild_status aotbuild_attention_backward_query(
    aotbuild_library* library, const aotbuild_attention_backward_args* args,
    aotbuild_launch_info* info);

#ifdef __cplusplus
}
/* Zeroed, with its size set. */
#define AOTBUILD_INIT(type) (::aotbuild_detail_init<type>())
template <class T>
inline T aotbuild_detail_init() {
  T value = {};
  value.struct_size = sizeof(T);
  return value;
}
#else
#define AOTBUILD_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

#endif /* AOTBUILD_AOTBUILD_H_ */
