/* Freezes the layout of aotbuild.h, for a 64-bit host. It only compiles; a line that has to change
 * here breaks every program built before, and needs another AOTBUILD_ABI_VERSION. */
#include <aotbuild/aotbuild.h>

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), "size of " #type)
#define OFFSET(type, member, offset) \
  _Static_assert(offsetof(type, member) == (offset), "offset of " #type "." #member)
#define VALUE(name, value) _Static_assert((name) == (value), "value of " #name)

VALUE(AOTBUILD_ABI_VERSION, 0);
SIZE(aotbuild_status, 4);
SIZE(aotbuild_stream, 8);

VALUE(AOTBUILD_OK, 0);
VALUE(AOTBUILD_ERROR_INVALID_ARGUMENT, 1);
VALUE(AOTBUILD_ERROR_UNSUPPORTED, 2);
VALUE(AOTBUILD_ERROR_NO_PACK, 3);
VALUE(AOTBUILD_ERROR_NO_IMAGE, 4);
VALUE(AOTBUILD_ERROR_PACK_CORRUPT, 5);
VALUE(AOTBUILD_ERROR_PACK_VERSION, 6);
VALUE(AOTBUILD_ERROR_PACK_ARCH, 7);
VALUE(AOTBUILD_ERROR_CONTRACT, 8);
VALUE(AOTBUILD_ERROR_NO_DRIVER, 9);
VALUE(AOTBUILD_ERROR_DRIVER, 10);
VALUE(AOTBUILD_ERROR_IO, 11);
VALUE(AOTBUILD_ERROR_OUT_OF_MEMORY, 12);
VALUE(AOTBUILD_ERROR_WORKSPACE, 13);
VALUE(AOTBUILD_ERROR_INTERNAL, 14);

VALUE(AOTBUILD_ARG_TENSOR, 1);
VALUE(AOTBUILD_ARG_INTEGER, 2);
VALUE(AOTBUILD_ARG_REAL, 3);
VALUE(AOTBUILD_ALIGN_UPPER_LEFT, 0);
VALUE(AOTBUILD_ALIGN_LOWER_RIGHT, 1);
VALUE(AOTBUILD_UNLIMITED, INT64_MAX);

SIZE(aotbuild_tensor, 48);
OFFSET(aotbuild_tensor, data, 0);
OFFSET(aotbuild_tensor, device.device_type, 8);
OFFSET(aotbuild_tensor, device.device_id, 12);
OFFSET(aotbuild_tensor, ndim, 16);
OFFSET(aotbuild_tensor, dtype.code, 20);
OFFSET(aotbuild_tensor, dtype.bits, 21);
OFFSET(aotbuild_tensor, dtype.lanes, 22);
OFFSET(aotbuild_tensor, shape, 24);
OFFSET(aotbuild_tensor, strides, 32);
OFFSET(aotbuild_tensor, byte_offset, 40);

SIZE(aotbuild_open_options, 48);
OFFSET(aotbuild_open_options, struct_size, 0);
OFFSET(aotbuild_open_options, paths, 8);
OFFSET(aotbuild_open_options, path_count, 16);
OFFSET(aotbuild_open_options, paths_only, 24);
OFFSET(aotbuild_open_options, reserved, 28);
OFFSET(aotbuild_open_options, wheel_paths, 32); /* where the struct ended at first */
OFFSET(aotbuild_open_options, wheel_count, 40);

SIZE(aotbuild_arg, 24);
OFFSET(aotbuild_arg, name, 0);
OFFSET(aotbuild_arg, kind, 8);
OFFSET(aotbuild_arg, reserved, 12);
OFFSET(aotbuild_arg, value.tensor, 16);
OFFSET(aotbuild_arg, value.integer, 16);
OFFSET(aotbuild_arg, value.real, 16);

SIZE(aotbuild_launch_args, 64);
OFFSET(aotbuild_launch_args, struct_size, 0);
OFFSET(aotbuild_launch_args, family, 8);
OFFSET(aotbuild_launch_args, op, 16);
OFFSET(aotbuild_launch_args, args, 24);
OFFSET(aotbuild_launch_args, arg_count, 32);
OFFSET(aotbuild_launch_args, stream, 40);
OFFSET(aotbuild_launch_args, workspace, 48);
OFFSET(aotbuild_launch_args, workspace_size, 56);

SIZE(aotbuild_launch_info, 64);
OFFSET(aotbuild_launch_info, struct_size, 0);
OFFSET(aotbuild_launch_info, pack, 8);
OFFSET(aotbuild_launch_info, image, 16);
OFFSET(aotbuild_launch_info, workspace_size, 24);
OFFSET(aotbuild_launch_info, workspace_align, 32);
OFFSET(aotbuild_launch_info, grid, 40);
OFFSET(aotbuild_launch_info, threads, 52);
OFFSET(aotbuild_launch_info, shared_bytes, 56);
OFFSET(aotbuild_launch_info, registers, 60);

SIZE(aotbuild_attention_forward_args, 104);
OFFSET(aotbuild_attention_forward_args, struct_size, 0);
OFFSET(aotbuild_attention_forward_args, q, 8);
OFFSET(aotbuild_attention_forward_args, k, 16);
OFFSET(aotbuild_attention_forward_args, v, 24);
OFFSET(aotbuild_attention_forward_args, out, 32);
OFFSET(aotbuild_attention_forward_args, lse, 40);
OFFSET(aotbuild_attention_forward_args, scale, 48);
OFFSET(aotbuild_attention_forward_args, window_left, 56);
OFFSET(aotbuild_attention_forward_args, window_right, 64);
OFFSET(aotbuild_attention_forward_args, window_align, 72);
OFFSET(aotbuild_attention_forward_args, allow_tf32, 76);
OFFSET(aotbuild_attention_forward_args, stream, 80);
OFFSET(aotbuild_attention_forward_args, workspace, 88);
OFFSET(aotbuild_attention_forward_args, workspace_size, 96);

SIZE(aotbuild_attention_backward_args, 136);
OFFSET(aotbuild_attention_backward_args, struct_size, 0);
OFFSET(aotbuild_attention_backward_args, q, 8);
OFFSET(aotbuild_attention_backward_args, k, 16);
OFFSET(aotbuild_attention_backward_args, v, 24);
OFFSET(aotbuild_attention_backward_args, out, 32);
OFFSET(aotbuild_attention_backward_args, lse, 40);
OFFSET(aotbuild_attention_backward_args, dout, 48);
OFFSET(aotbuild_attention_backward_args, dq, 56);
OFFSET(aotbuild_attention_backward_args, dk, 64);
OFFSET(aotbuild_attention_backward_args, dv, 72);
OFFSET(aotbuild_attention_backward_args, scale, 80);
OFFSET(aotbuild_attention_backward_args, window_left, 88);
OFFSET(aotbuild_attention_backward_args, window_right, 96);
OFFSET(aotbuild_attention_backward_args, window_align, 104);
OFFSET(aotbuild_attention_backward_args, allow_tf32, 108);
OFFSET(aotbuild_attention_backward_args, stream, 112);
OFFSET(aotbuild_attention_backward_args, workspace, 120);
OFFSET(aotbuild_attention_backward_args, workspace_size, 128);

/* The initialiser is C, too. */
aotbuild_launch_info aotbuild_layout_example(void);
aotbuild_launch_info aotbuild_layout_example(void) { return AOTBUILD_INIT(aotbuild_launch_info); }
