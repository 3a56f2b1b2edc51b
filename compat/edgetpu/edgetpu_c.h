/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface of libedgetpu.so.1, and what runtimes of TensorFlow Lite look for in it. Names
 * and layouts are Google's; programs bring Google's own header, this one is for the library itself
 * and its tests. Nothing here crashes for a NULL: it fails, and says so on stderr.
 */
#ifndef ATOLL_COMPAT_EDGETPU_EDGETPU_C_H_
#define ATOLL_COMPAT_EDGETPU_EDGETPU_C_H_

#include "compat/tflite/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATOLL_EDGETPU_EXPORT __attribute__((visibility("default")))

enum edgetpu_device_type { EDGETPU_APEX_PCI = 0, EDGETPU_APEX_USB = 1 };

struct edgetpu_device {
  enum edgetpu_device_type type;
  const char* path;
};

struct edgetpu_option {
  const char* name;
  const char* value;
};

/* One allocation for edgetpu_free_devices; NULL for none. */
ATOLL_EDGETPU_EXPORT struct edgetpu_device* edgetpu_list_devices(size_t* num_devices);
ATOLL_EDGETPU_EXPORT void edgetpu_free_devices(struct edgetpu_device* devices);

/* NULL as path: any of the type; with options there must be one. NULL, and why on stderr, if there
 * is no such device. */
ATOLL_EDGETPU_EXPORT TfLiteDelegate* edgetpu_create_delegate(enum edgetpu_device_type type,
                                                             const char* path,
                                                             const struct edgetpu_option* options,
                                                             size_t num_options);
ATOLL_EDGETPU_EXPORT void edgetpu_free_delegate(TfLiteDelegate* delegate);

ATOLL_EDGETPU_EXPORT void edgetpu_verbosity(int verbosity);
/* "BuildLabel(Atoll 0.1.0), RuntimeVersion(14)" */
ATOLL_EDGETPU_EXPORT const char* edgetpu_version(void);

/* NULL, and why to `report` or, without one, on stderr, if there is no such device. */
ATOLL_EDGETPU_EXPORT TfLiteDelegate* tflite_plugin_create_delegate(
    char** keys, char** values, size_t count, void (*report)(const char* message));
ATOLL_EDGETPU_EXPORT void tflite_plugin_destroy_delegate(TfLiteDelegate* delegate);

#ifdef __cplusplus
}
#endif

#endif /* ATOLL_COMPAT_EDGETPU_EDGETPU_C_H_ */
