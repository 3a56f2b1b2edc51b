/* SPDX-License-Identifier: Apache-2.0
 *
 * Atoll's delegate: runs what it can of a model on an accelerator. Conventions as in
 * atoll/runtime.h. A delegate may be shared by interpreters on any threads and must outlive them.
 */
#ifndef ATOLL_DELEGATE_H_
#define ATOLL_DELEGATE_H_

#include "atoll/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct AtollDelegateOptions {
  size_t struct_size;
  /* "auto": the first real device, else the emulator. "emu", "emu:PROFILE": the emulator.
   * "usb", "usb:N", "pci:N": a real device. NULL means "auto". ("cpu" is no delegate at all.) */
  const char* device;
  /* Host threads that the emulator computes with; 0: a sensible default. */
  int32_t num_threads;
} AtollDelegateOptions;
#define ATOLL_DELEGATE_OPTIONS_INIT \
  { sizeof(AtollDelegateOptions), NULL, 0 }

/* Opens the device. ATOLL_NOT_FOUND if there is none of that name. `options` may be NULL. */
ATOLL_EXPORT AtollStatus AtollDelegateCreate(const AtollDelegateOptions* options,
                                             AtollDelegate** delegate);
ATOLL_EXPORT void AtollDelegateDelete(AtollDelegate* delegate);

typedef struct AtollDeviceInfo {
  const char* name;        /* "emu", "usb:0": what --device would take */
  const char* description; /* "emulated Atoll-1, 64x64 at 500 MHz, 8 MiB, USB 3" */
  int32_t available;       /* nonzero: can be opened now */
  int32_t is_default;      /* nonzero: what "auto" takes */
} AtollDeviceInfo;

/* The device that a delegate runs on. Strings live as long as the delegate. */
ATOLL_EXPORT AtollStatus AtollDelegateGetDeviceInfo(const AtollDelegate* delegate,
                                                    AtollDeviceInfo* info);

/* Looks at what is there now. Strings stay valid until the next call on the same thread. */
ATOLL_EXPORT AtollStatus AtollListDevices(const AtollDeviceInfo** devices, int32_t* count);

/* Receives the bytes that a function makes. They are valid during the call. */
typedef void (*AtollBytesCallback)(const void* data, size_t size, void* user_data);

/* The model with its partitions compiled for the delegate's device, as the bytes of a .tflite file:
 * `callback` is called once with all of them. The file loads without a compile step on such a
 * device and runs on any other, and on the CPU, as the original does. ATOLL_UNSUPPORTED if nothing
 * of the model can run on the device. */
ATOLL_EXPORT AtollStatus AtollDelegateCompileModel(const AtollDelegate* delegate,
                                                   const AtollModel* model,
                                                   AtollBytesCallback callback, void* user_data);

/* What a real Coral Edge TPU would take for a model: a prediction from the shapes of its layers,
 * fitted to published latencies (docs/fidelity.md says how well). Not a measurement, and not the
 * time of any device that Atoll drives. One inference: */
typedef struct AtollCoralEstimate {
  double seconds;           /* the sum of the seven below */
  double host_seconds;      /* the host's work to start a request */
  double link_out_seconds;  /* instructions and inputs */
  double dense_seconds;     /* convolutions and matrix products */
  double vector_seconds;    /* depthwise convolutions, pooling, element-wise operators */
  double layer_seconds;     /* the constant part of every layer */
  double parameter_seconds; /* streaming that no computation hides */
  double link_in_seconds;   /* outputs */
  double upload_seconds;    /* more for the first inference and after one of another model */
  int64_t instruction_bytes;
  int64_t input_bytes;
  int64_t output_bytes;
  int64_t cached_parameter_bytes;   /* on the chip between inferences */
  int64_t streamed_parameter_bytes; /* sent with every inference */
  int32_t device_node_count; /* from the input to the first operator that a Coral cannot run */
  int32_t host_node_count;   /* the rest, whose time on the host is not in any of this */
} AtollCoralEstimate;

/* `host` is what the Coral is plugged into: "usb3" (a desktop computer, also for NULL), "usb2" (a
 * Raspberry Pi 3), "usb3-pi4" or "pcie" (a Coral Dev Board); another name is ATOLL_NOT_FOUND.
 * ATOLL_UNSUPPORTED if no operator would run on a Coral. */
ATOLL_EXPORT AtollStatus AtollEstimateCoral(const AtollModel* model, const char* host,
                                            AtollCoralEstimate* estimate);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ATOLL_DELEGATE_H_ */
