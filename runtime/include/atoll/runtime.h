/* SPDX-License-Identifier: Apache-2.0
 *
 * Atoll's C interface: models, interpreters, tensors. Names follow TensorFlow Lite's C API where
 * the meaning is the same. C99; C++ users may include it as it is.
 *
 * Conventions
 *  - Functions that can fail return an AtollStatus; results come through the last parameters and
 *    are untouched on failure. AtollLastError() gives the sentence for the last failure on the
 *    calling thread.
 *  - Sizes are in bytes unless a name says otherwise. Strings are UTF-8, NUL-terminated, owned by
 *    the object that they came from and valid as long as it lives.
 *  - Create/Delete pair up; Delete(NULL) is a no-op. A model may be deleted while interpreters
 *    made from it live: they keep what they need.
 *  - Options structs start with struct_size: initialise them with their *_INIT macro.
 *  - Thread safety: an AtollModel is immutable and may be shared by threads. An AtollInterpreter
 *    and its tensors belong to one thread at a time. Different interpreters may run at the same
 *    time, also on one delegate. AtollLastError is per thread.
 *  - Nothing is ever printed; install a log callback to hear notes and warnings.
 *  - Out of memory: sizes that come from models give ATOLL_RESOURCE_EXHAUSTED; a failure of a
 *    small internal allocation ends the process, as does a failed internal check (a bug in
 *    Atoll). Nothing else does.
 */
#ifndef ATOLL_RUNTIME_H_
#define ATOLL_RUNTIME_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ATOLL_EXPORT __attribute__((visibility("default")))
#else
#define ATOLL_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum AtollStatus {
  ATOLL_OK = 0,
  ATOLL_INVALID_ARGUMENT = 1,
  ATOLL_CORRUPT_MODEL = 2,
  ATOLL_UNSUPPORTED = 3,
  ATOLL_NOT_FOUND = 4,
  ATOLL_PERMISSION_DENIED = 5,
  ATOLL_DEVICE_BUSY = 6,
  ATOLL_DEVICE_LOST = 7,
  ATOLL_TIMEOUT = 8,
  ATOLL_RESOURCE_EXHAUSTED = 9,
  ATOLL_CANCELLED = 10,
  ATOLL_INTERNAL = 11
} AtollStatus;

/* "0.1.0" */
ATOLL_EXPORT const char* AtollVersion(void);
/* "not found" and so on. */
ATOLL_EXPORT const char* AtollStatusName(AtollStatus status);
/* One sentence about the last failure on this thread; valid until the next call on it. */
ATOLL_EXPORT const char* AtollLastError(void);
/* The instruction set whose kernels will be used: "avx512vnni", "avx2", "baseline". The
 * environment variable ATOLL_CPU caps it (for debugging). */
ATOLL_EXPORT AtollStatus AtollCpuName(const char** name);

typedef enum AtollLogSeverity {
  ATOLL_LOG_INFO = 0,
  ATOLL_LOG_WARNING = 1,
  ATOLL_LOG_ERROR = 2
} AtollLogSeverity;
/* Called from any thread that is inside Atoll; must not call Atoll. NULL silences. */
typedef void (*AtollLogCallback)(AtollLogSeverity severity, const char* message, void* user_data);
ATOLL_EXPORT void AtollSetLogCallback(AtollLogCallback callback, void* user_data);

/* ---- Model ---------------------------------------------------------------------------------- */

typedef struct AtollModel AtollModel;

/* Maps the file; it must not be truncated or rewritten while models or interpreters made from it
 * live. Every index, size and shape in it is checked here. */
ATOLL_EXPORT AtollStatus AtollModelCreateFromFile(const char* path, AtollModel** model);
/* Copies the bytes. */
ATOLL_EXPORT AtollStatus AtollModelCreateFromBuffer(const void* data, size_t size,
                                                    AtollModel** model);
ATOLL_EXPORT void AtollModelDelete(AtollModel* model);
/* Nonzero if the model has a node of this operator: "CONV_2D", or the name of a custom one. Tells
 * before an interpreter is created what kind of model it is. 0 for NULL. */
ATOLL_EXPORT int32_t AtollModelHasOperator(const AtollModel* model, const char* op);

/* ---- Delegate ------------------------------------------------------------------------------- */

/* Something that runs parts of graphs elsewhere; atoll/delegate.h creates one. It must outlive
 * the interpreters that use it. */
typedef struct AtollDelegate AtollDelegate;

/* ---- Interpreter ---------------------------------------------------------------------------- */

typedef struct AtollInterpreter AtollInterpreter;

typedef struct AtollInterpreterOptions {
  size_t struct_size;
  int32_t num_threads;     /* for operators on the CPU; 0: a sensible default */
  AtollDelegate* delegate; /* NULL: everything on the CPU */
} AtollInterpreterOptions;
#define ATOLL_INTERPRETER_OPTIONS_INIT \
  { sizeof(AtollInterpreterOptions), 0, NULL }

/* Plans, compiles and allocates everything that Invoke needs. `options` may be NULL. */
ATOLL_EXPORT AtollStatus AtollInterpreterCreate(const AtollModel* model,
                                                const AtollInterpreterOptions* options,
                                                AtollInterpreter** interpreter);
/* Waits for an invocation in progress. */
ATOLL_EXPORT void AtollInterpreterDelete(AtollInterpreter* interpreter);

/* Runs the model on what its input tensors hold. Allocates nothing. */
ATOLL_EXPORT AtollStatus AtollInterpreterInvoke(AtollInterpreter* interpreter);

/* The same on a thread of the interpreter's. Between InvokeAsync and the Wait that follows it
 * (exactly one) only Cancel may be called on the interpreter. */
ATOLL_EXPORT AtollStatus AtollInterpreterInvokeAsync(AtollInterpreter* interpreter);
ATOLL_EXPORT AtollStatus AtollInterpreterWait(AtollInterpreter* interpreter);
/* Makes the invocation in progress end early with ATOLL_CANCELLED if it still can. Any thread. */
ATOLL_EXPORT AtollStatus AtollInterpreterCancel(AtollInterpreter* interpreter);

/* Forgets what earlier invocations left for later ones: variable tensors of recurrent operators,
 * and variables that the model assigns. The next invocation is like the first. */
ATOLL_EXPORT AtollStatus AtollInterpreterResetVariableTensors(AtollInterpreter* interpreter);

/* ---- Tensors -------------------------------------------------------------------------------- */

typedef struct AtollTensor AtollTensor;

typedef enum AtollType {
  ATOLL_FLOAT32 = 0,
  ATOLL_INT32 = 2,
  ATOLL_UINT8 = 3,
  ATOLL_INT64 = 4,
  ATOLL_STRING = 5,
  ATOLL_BOOL = 6,
  ATOLL_INT16 = 7,
  ATOLL_INT8 = 9,
  ATOLL_RESOURCE = 13, /* the number of a variable, an int32 */
  ATOLL_UINT32 = 15
} AtollType;
ATOLL_EXPORT const char* AtollTypeName(AtollType type); /* "int8" */

ATOLL_EXPORT int32_t AtollInterpreterGetInputTensorCount(const AtollInterpreter* interpreter);
ATOLL_EXPORT int32_t AtollInterpreterGetOutputTensorCount(const AtollInterpreter* interpreter);
/* NULL if the index is out of range. Tensors belong to the interpreter. */
ATOLL_EXPORT AtollTensor* AtollInterpreterGetInputTensor(AtollInterpreter* interpreter,
                                                         int32_t index);
ATOLL_EXPORT const AtollTensor* AtollInterpreterGetOutputTensor(const AtollInterpreter* interpreter,
                                                                int32_t index);

ATOLL_EXPORT const char* AtollTensorName(const AtollTensor* tensor);
ATOLL_EXPORT AtollType AtollTensorType(const AtollTensor* tensor);
ATOLL_EXPORT int32_t AtollTensorNumDims(const AtollTensor* tensor);
/* -1 if `dim` is out of range. */
ATOLL_EXPORT int32_t AtollTensorDim(const AtollTensor* tensor, int32_t dim);
ATOLL_EXPORT size_t AtollTensorByteSize(const AtollTensor* tensor);
/* The tensor's bytes, row-major; write inputs through it, read outputs. */
ATOLL_EXPORT void* AtollTensorData(AtollTensor* tensor);
ATOLL_EXPORT const void* AtollTensorConstData(const AtollTensor* tensor);
/* real value = scale * (stored value - zero_point); scale 0 means "not quantized" (or per
 * channel). */
typedef struct AtollQuantization {
  float scale;
  int32_t zero_point;
} AtollQuantization;
ATOLL_EXPORT AtollQuantization AtollTensorQuantization(const AtollTensor* tensor);
/* `size` must be the tensor's byte size. */
ATOLL_EXPORT AtollStatus AtollTensorCopyFromBuffer(AtollTensor* tensor, const void* data,
                                                   size_t size);
ATOLL_EXPORT AtollStatus AtollTensorCopyToBuffer(const AtollTensor* tensor, void* data,
                                                 size_t size);

/* ---- What runs where ------------------------------------------------------------------------ */

typedef struct AtollNodeInfo {
  const char* op;        /* "CONV_2D", or the name of a custom operator */
  const char* reason;    /* why it is not on the device; "" if it is, or if there is none */
  int32_t partition;     /* index of its device partition, or -1: on the CPU */
  int64_t macs;          /* multiply-accumulates, 0 for operators that have none */
  const int32_t* inputs; /* tensor indices in the file, -1: absent */
  int32_t input_count;
  const int32_t* outputs;
  int32_t output_count;
} AtollNodeInfo;
/* Nodes in execution order. */
ATOLL_EXPORT int32_t AtollInterpreterGetNodeCount(const AtollInterpreter* interpreter);
ATOLL_EXPORT AtollStatus AtollInterpreterGetNodeInfo(const AtollInterpreter* interpreter,
                                                     int32_t index, AtollNodeInfo* info);

/* Where the modelled time of one inference on a device goes, in seconds. Link and units work side
 * by side, so the parts may add up to more than the total. */
typedef struct AtollModelledLatency {
  double total;
  double host;       /* submitting and collecting the request */
  double link_out;   /* inputs on their way to the device */
  double parameters; /* streamed parameters on their way to the device */
  double array;      /* the array is busy */
  double vector;     /* the vector unit is busy */
  double dma;        /* bytes are moved on chip */
  double link_in;    /* outputs on their way to the host */
} AtollModelledLatency;

typedef struct AtollPartitionInfo {
  int32_t node_count;
  int32_t instruction_count;
  int64_t resident_parameter_bytes; /* stay on the device between inferences */
  int64_t streamed_parameter_bytes; /* are sent again with every inference */
  int64_t activation_bytes;         /* on-chip memory for activations */
  int64_t input_bytes;              /* over the link, per inference */
  int64_t output_bytes;
  int64_t estimated_cycles; /* modelled, from the start message to the last output byte */
  AtollModelledLatency latency;
  const char* note; /* e.g. which parameters are streamed and why; "" if nothing */
} AtollPartitionInfo;
ATOLL_EXPORT int32_t AtollInterpreterGetPartitionCount(const AtollInterpreter* interpreter);
ATOLL_EXPORT AtollStatus AtollInterpreterGetPartitionInfo(const AtollInterpreter* interpreter,
                                                          int32_t index, AtollPartitionInfo* info);

/* Any tensor of the model by its index in the file; name, type, shape and quantization only
 * (data may be NULL or reused by other tensors). NULL if out of range. */
ATOLL_EXPORT int32_t AtollInterpreterGetTensorCount(const AtollInterpreter* interpreter);
ATOLL_EXPORT const AtollTensor* AtollInterpreterGetTensor(const AtollInterpreter* interpreter,
                                                          int32_t index);
/* Nonzero if the tensor is stored in the model file (weights, biases, shapes). */
ATOLL_EXPORT int32_t AtollTensorIsConstant(const AtollTensor* tensor);

typedef struct AtollMemoryInfo {
  int64_t arena_bytes;    /* one block for all intermediate tensors */
  int64_t constant_bytes; /* used in place from the model file */
} AtollMemoryInfo;
ATOLL_EXPORT AtollStatus AtollInterpreterGetMemoryInfo(const AtollInterpreter* interpreter,
                                                       AtollMemoryInfo* info);

/* What the device said about the last completed invocation; zeros without a device. Cycles are
 * modelled when the device is the emulator. */
typedef struct AtollInvokeInfo {
  int64_t device_cycles;
  int64_t bytes_to_device;
  int64_t bytes_from_device;
  double device_seconds; /* modelled: device cycles and transfer over the link */
} AtollInvokeInfo;
ATOLL_EXPORT AtollStatus AtollInterpreterGetInvokeInfo(const AtollInterpreter* interpreter,
                                                       AtollInvokeInfo* info);

/* ---- Taps and traces ------------------------------------------------------------------------ */

/* Called during Invoke, on its thread, for each tensor that a step has just written: operators
 * on the CPU one by one, a device partition as one step (tensors inside it exist only on the
 * device). The data is valid during the call. */
typedef void (*AtollTensorTap)(int32_t tensor_index, const AtollTensor* tensor, void* user_data);
ATOLL_EXPORT void AtollInterpreterSetTensorTap(AtollInterpreter* interpreter, AtollTensorTap tap,
                                               void* user_data);

typedef struct AtollTraceEvent {
  const char* name;   /* operator, or "partition 0" */
  int32_t partition;  /* -1: on the CPU */
  int32_t first_node; /* index of the (first) node */
  int64_t start_ns;   /* monotonic clock */
  int64_t duration_ns;
  int64_t device_cycles; /* modelled on the emulator; 0 on the CPU */
} AtollTraceEvent;
/* Called at the end of each step of Invoke, on its thread. */
typedef void (*AtollTraceCallback)(const AtollTraceEvent* event, void* user_data);
ATOLL_EXPORT void AtollInterpreterSetTraceCallback(AtollInterpreter* interpreter,
                                                   AtollTraceCallback callback, void* user_data);

/* Runs a few seconds' worth of built-in checks: every kernel of this CPU against the reference
 * arithmetic. ATOLL_INTERNAL, with a sentence, if one differs. */
ATOLL_EXPORT AtollStatus AtollSelfTest(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ATOLL_RUNTIME_H_ */
