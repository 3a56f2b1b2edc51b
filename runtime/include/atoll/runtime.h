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
 *  - Create/Delete pair up; Delete(NULL) is a no-op. A model and a delegate may be deleted while
 *    interpreters made from them live: these keep what they need.
 *  - NULL for something that is needed, and an index out of range, do nothing: a function that
 *    returns a status gives ATOLL_INVALID_ARGUMENT, others 0 (AtollTensorDim -1), NULL, "" or
 *    ATOLL_NO_TYPE; AtollLastError() then names the argument.
 *  - Options structs start with struct_size: initialise them with their *_INIT macro. A program
 *    that was built with an older header, whose struct ends after an earlier field, gets the
 *    defaults for the rest; one with a newer header is refused only if what is new there is not 0.
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
/* The instruction set whose kernels will be used: "avx512vnni" (in libatoll-core "avx512vnni256",
 * its instructions with vectors of AVX2), "avxvnni" or "avx2" on x86-64, "neon_i8mm",
 * "neon_dotprod" or "neon" on 64-bit ARM, "baseline" elsewhere. The environment variable ATOLL_CPU
 * caps it (for debugging); libatoll-core refuses "avx512vnni". */
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
 * live, which would end the process (SIGBUS) or change results: replace it by renaming a new file
 * to its name, not by copying over it, or set AtollModelOptions.copy_file. Every index, size and
 * shape in it is checked here. */
ATOLL_EXPORT AtollStatus AtollModelCreateFromFile(const char* path, AtollModel** model);
/* Copies the bytes. */
ATOLL_EXPORT AtollStatus AtollModelCreateFromBuffer(const void* data, size_t size,
                                                    AtollModel** model);

/* The shape that an input shall have instead of the one in the file. */
typedef struct AtollInputShape {
  const char* name; /* of the input; NULL: `index` says which one */
  int32_t index;    /* among the inputs, from 0; -1: the only one */
  /* As many sizes as the file has, each at least 1. Two for an input of three or four, [n, h, w] or
   * [n, h, w, c], are its height and width; the others stay. */
  const int32_t* dims;
  int32_t num_dims;
} AtollInputShape;

typedef struct AtollModelOptions {
  size_t struct_size;
  const AtollInputShape* input_shapes; /* read during the call; inputs not among them keep theirs */
  int32_t input_shape_count;
  /* Of a file, nonzero: read it into memory instead of mapping it. Whatever happens to the file
   * afterwards does not matter, and neither does it if it shrinks meanwhile; in exchange its bytes
   * take memory of the process, which mapped ones share with the system's cache. (As wide as a
   * pointer: programs built before it was there are known by their struct_size.) */
  size_t copy_file;
} AtollModelOptions;
#define ATOLL_MODEL_OPTIONS_INIT \
  { sizeof(AtollModelOptions), NULL, 0, 0 }

/* The same with other shapes of inputs than the file has, also for inputs that have dynamic ones
 * there; all other shapes follow. `options` may be NULL. ATOLL_INVALID_ARGUMENT if there is no such
 * input or it cannot have that shape; ATOLL_UNSUPPORTED if the model was compiled for other shapes;
 * this or ATOLL_CORRUPT_MODEL, with the first operator that they do not fit, if there is one. */
ATOLL_EXPORT AtollStatus AtollModelCreateFromFileWithOptions(const char* path,
                                                             const AtollModelOptions* options,
                                                             AtollModel** model);
ATOLL_EXPORT AtollStatus AtollModelCreateFromBufferWithOptions(const void* data, size_t size,
                                                               const AtollModelOptions* options,
                                                               AtollModel** model);

ATOLL_EXPORT void AtollModelDelete(AtollModel* model);
/* Nonzero if the model has a node of this operator: "CONV_2D", the name of a custom one, or
 * "CUSTOM" for any custom one. Tells before an interpreter is created what kind of model it is. 0
 * for NULL. */
ATOLL_EXPORT int32_t AtollModelHasOperator(const AtollModel* model, const char* op);

/* Names that a model has for inputs and outputs. */
typedef struct AtollSignatureTensor {
  const char* name;
  int32_t tensor; /* index in the file */
} AtollSignatureTensor;
typedef struct AtollSignatureInfo {
  const char* key;  /* "serving_default" */
  int32_t subgraph; /* that it belongs to; interpreters run 0 */
  const AtollSignatureTensor* inputs;
  int32_t input_count;
  const AtollSignatureTensor* outputs;
  int32_t output_count;
} AtollSignatureInfo;
/* What `info` points at lives as long as the model, and interpreters that were made from it. */
ATOLL_EXPORT int32_t AtollModelGetSignatureCount(const AtollModel* model);
ATOLL_EXPORT AtollStatus AtollModelGetSignature(const AtollModel* model, int32_t index,
                                                AtollSignatureInfo* info);

/* The tensors of a model before there is an interpreter, also of a model that cannot run here. They
 * are as those of an interpreter (below), with the shapes that the model has, live as long as the
 * model and have no data. NULL if the index is out of range. */
typedef struct AtollTensor AtollTensor;
ATOLL_EXPORT int32_t AtollModelGetTensorCount(const AtollModel* model);
ATOLL_EXPORT const AtollTensor* AtollModelGetTensor(const AtollModel* model, int32_t index);
ATOLL_EXPORT int32_t AtollModelGetInputTensorCount(const AtollModel* model);
ATOLL_EXPORT const AtollTensor* AtollModelGetInputTensor(const AtollModel* model, int32_t index);
ATOLL_EXPORT int32_t AtollModelGetOutputTensorCount(const AtollModel* model);
ATOLL_EXPORT const AtollTensor* AtollModelGetOutputTensor(const AtollModel* model, int32_t index);

/* Bytes that came with a model under a name, where they lie in it. */
ATOLL_EXPORT int32_t AtollModelGetMetadataCount(const AtollModel* model);
ATOLL_EXPORT AtollStatus AtollModelGetMetadata(const AtollModel* model, int32_t index,
                                               const char** name, const void** data, size_t* size);

/* ---- Delegate ------------------------------------------------------------------------------- */

/* Something that runs parts of graphs elsewhere; atoll/delegate.h creates one. Interpreters that
 * use it keep it open. */
typedef struct AtollDelegate AtollDelegate;

/* ---- Interpreter ---------------------------------------------------------------------------- */

typedef struct AtollInterpreter AtollInterpreter;

typedef struct AtollInterpreterOptions {
  size_t struct_size;
  int32_t num_threads;     /* for operators on the CPU; 0: a sensible default */
  AtollDelegate* delegate; /* NULL: everything on the CPU */
  /* When interpreters share a delegate: requests of the higher priority run first, those of equal
   * priority in turns. */
  int32_t priority;
  /* Interpreters with the same number, if it is not 0, are used together: their models do not push
   * each other off the device while another one can make room. */
  uint32_t residency_set;
  /* Does what the model does, with inputs and outputs of the same types and shapes. For models that
   * were compiled for a Coral, which no other device can stand in for: on a Coral, invocations that
   * would fail with ATOLL_DEVICE_LOST complete on it, on the CPU; without one, it runs in the
   * model's place from the start (AtollInterpreterGetSubstitute), and NULL lets the library look
   * for such a model. It is kept as long as it is needed. */
  const AtollModel* fallback;
  /* Nonzero: all tensors keep their bytes until the next invocation, but for those inside
   * partitions. Takes more memory, and more time. (As wide as a pointer, so that nothing new hides
   * in padding.) */
  size_t keep_all_tensors;
} AtollInterpreterOptions;
#define ATOLL_INTERPRETER_OPTIONS_INIT \
  { sizeof(AtollInterpreterOptions), 0, NULL, 0, 0, NULL, 0 }

/* Plans, compiles and allocates everything that Invoke needs. `options` may be NULL. */
ATOLL_EXPORT AtollStatus AtollInterpreterCreate(const AtollModel* model,
                                                const AtollInterpreterOptions* options,
                                                AtollInterpreter** interpreter);
/* What runs instead, of a model that Google's compiler made for a Coral, where `delegate` is none:
 * the model that it was made from, on any device and exactly, found as docs/coral.md says
 * (AtollInterpreterOptions.fallback, ATOLL_MODEL_PATH, beside the file). `path` becomes the name of
 * its file, "" if the fallback came from memory, or NULL if the model itself runs. It is decided
 * when the interpreter is created, and again by AtollInterpreterAllocateTensors after a resize: a
 * Coral that is plugged in later changes nothing. Inputs and outputs keep the names and indices
 * that they have in the compiled model; everything else that the interpreter tells is of the one
 * that runs. Its bytes may differ from a Coral's, as may those of another conversion. The string
 * lives until then, or as long as the interpreter. Always NULL in libatoll-core. */
ATOLL_EXPORT AtollStatus AtollInterpreterGetSubstitute(const AtollInterpreter* interpreter,
                                                       const char** path);
/* Waits for an invocation in progress. */
ATOLL_EXPORT void AtollInterpreterDelete(AtollInterpreter* interpreter);

/* Runs the model on what its input tensors hold. Allocates nothing. */
ATOLL_EXPORT AtollStatus AtollInterpreterInvoke(AtollInterpreter* interpreter);

/* The same on a thread of the interpreter's. Between InvokeAsync and the Wait that follows it
 * (exactly one) only Cancel may be called on the interpreter. */
ATOLL_EXPORT AtollStatus AtollInterpreterInvokeAsync(AtollInterpreter* interpreter);
ATOLL_EXPORT AtollStatus AtollInterpreterWait(AtollInterpreter* interpreter);
/* Makes the invocation in progress end early with ATOLL_CANCELLED if it still can: before the next
 * operator (or chain of operators that runs line by line) of the CPU, or while it waits for a
 * device. What the CPU has begun runs to its end, a single convolution of seconds, too. Any thread.
 */
ATOLL_EXPORT AtollStatus AtollInterpreterCancel(AtollInterpreter* interpreter);

/* Another shape for an input, as in AtollInputShape. Until AtollInterpreterAllocateTensors the
 * interpreter is not ready: it refuses invocations, and tensors have no data. */
ATOLL_EXPORT AtollStatus AtollInterpreterResizeInput(AtollInterpreter* interpreter, int32_t index,
                                                     const int32_t* dims, int32_t num_dims);
/* Plans, compiles and allocates anew for the shapes that inputs have been given; nothing if that
 * was done. Tensors keep their addresses, not their data; state, listeners and buffers are as after
 * AtollInterpreterCreate. After a failure (as AtollModelCreateFromFileWithOptions) the interpreter
 * is not ready, and other shapes may be tried. */
ATOLL_EXPORT AtollStatus AtollInterpreterAllocateTensors(AtollInterpreter* interpreter);

/* Forgets what earlier invocations left for later ones: variable tensors of recurrent operators,
 * and variables that the model assigns. The next invocation is like the first. */
ATOLL_EXPORT AtollStatus AtollInterpreterResetVariableTensors(AtollInterpreter* interpreter);

/* ---- Tensors -------------------------------------------------------------------------------- */

typedef enum AtollType {
  ATOLL_NO_TYPE = -1, /* there is no tensor */
  ATOLL_FLOAT32 = 0,
  ATOLL_FLOAT16 = 1,
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
/* The size in the model's file, -1 if it may be any. -2 if `dim` is out of range. */
ATOLL_EXPORT int32_t AtollTensorDimSignature(const AtollTensor* tensor, int32_t dim);
/* Its index in the file; -1 for NULL. */
ATOLL_EXPORT int32_t AtollTensorIndex(const AtollTensor* tensor);
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
/* The same, with one pair for each channel of some weights. The arrays live as long as the tensor.
 */
typedef struct AtollChannelQuantization {
  int32_t count;     /* 0: not quantized; 1: AtollTensorQuantization has it; else per channel */
  int32_t dimension; /* of the shape, along which channels run */
  const float* scales;
  const int64_t* zero_points;
} AtollChannelQuantization;
ATOLL_EXPORT AtollStatus AtollTensorGetChannelQuantization(const AtollTensor* tensor,
                                                           AtollChannelQuantization* info);
/* `size` must be the tensor's byte size. */
ATOLL_EXPORT AtollStatus AtollTensorCopyFromBuffer(AtollTensor* tensor, const void* data,
                                                   size_t size);
ATOLL_EXPORT AtollStatus AtollTensorCopyToBuffer(const AtollTensor* tensor, void* data,
                                                 size_t size);

/* ---- Memory of others ----------------------------------------------------------------------- */

/* Memory for inputs and outputs that is not the interpreter's. Interpreters that use a buffer keep
 * it; it may be deleted before them. */
typedef struct AtollBuffer AtollBuffer;

typedef enum AtollBufferKind {
  ATOLL_BUFFER_HEAP = 0, /* of Atoll's own, `size` zeroed bytes, aligned to 64 */
  /* The caller's, at `data`, which stays there until `release` says that it is not needed any more.
   */
  ATOLL_BUFFER_CALLER = 1,
  /* Memory that a broker's device (docs/broker.md) uses where it is. With `fd` -1: of Atoll's own,
   * as ATOLL_BUFFER_HEAP. Else `size` bytes of the memfd `fd` from `offset` on, which others may
   * map, too; Atoll seals it against changes of its size, and keeps it open itself: `release` is
   * not called. Brokers read inputs there; outputs are copied, as nobody could take it from one
   * that hangs. libatoll-core has none. */
  ATOLL_BUFFER_SHARED = 2,
  ATOLL_BUFFER_DMABUF = 3, /* a dma-buf, `fd` */
  /* As ATOLL_BUFFER_CALLER, and on a device that reaches memory itself (PCIe) never a copy for it:
   * AtollInterpreterSetInputBuffer and AtollInterpreterSetOutputBuffer fail if it cannot be pinned,
   * and say why and what to do. Others do without where they can and copy where they must. */
  ATOLL_BUFFER_DMA = 4
} AtollBufferKind;

typedef struct AtollBufferOptions {
  size_t struct_size;
  AtollBufferKind kind;
  int32_t fd;
  void* data;
  size_t size; /* bytes */
  int64_t offset;
  void (*release)(void* user_data); /* called once, on any thread; NULL: nobody is told */
  void* user_data;
} AtollBufferOptions;
#define ATOLL_BUFFER_OPTIONS_INIT \
  { sizeof(AtollBufferOptions), ATOLL_BUFFER_HEAP, -1, NULL, 0, 0, NULL, NULL }

/* ATOLL_UNSUPPORTED for the kind that this version only names, _DMABUF. After a failure, `release`
 * is not called. */
ATOLL_EXPORT AtollStatus AtollBufferCreate(const AtollBufferOptions* options, AtollBuffer** buffer);
ATOLL_EXPORT void AtollBufferDelete(AtollBuffer* buffer);
ATOLL_EXPORT void* AtollBufferData(const AtollBuffer* buffer);
ATOLL_EXPORT size_t AtollBufferSize(const AtollBuffer* buffer);

/* From now on an input is read from, or an output written to, the bytes of `buffer` from `offset`
 * on, in place where they are aligned to the tensor's type and the plan allows it, else by a copy;
 * NULL: the interpreter's own memory again. While it is set, a device that reaches memory itself
 * has it pinned: its pages, whole, can be read and written by that device. The buffer holds what
 * the tensor holds between invocations: AtollTensorData is for tensors without one. */
ATOLL_EXPORT AtollStatus AtollInterpreterSetInputBuffer(AtollInterpreter* interpreter,
                                                        int32_t index, const AtollBuffer* buffer,
                                                        size_t offset);
ATOLL_EXPORT AtollStatus AtollInterpreterSetOutputBuffer(AtollInterpreter* interpreter,
                                                         int32_t index, const AtollBuffer* buffer,
                                                         size_t offset);

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

/* How a convolution or fully connected layer of bytes runs on the CPU. Names live as long as the
 * library. ATOLL_INVALID_ARGUMENT if there is no node `index`. */
typedef struct AtollNodeKernel {
  const char* name;       /* "GemmAvx2"; "" for all other nodes, and then the rest is 0 */
  int32_t channels;       /* of the output */
  int32_t float_channels; /* whose sums become bytes by one multiply-add of floats, proven to give
                             the same; the others by TensorFlow Lite's steps of integers */
  int32_t packed_in_file; /* 1: the weights are used as they lie in a compiled model */
} AtollNodeKernel;
ATOLL_EXPORT AtollStatus AtollInterpreterGetNodeKernel(const AtollInterpreter* interpreter,
                                                       int32_t index, AtollNodeKernel* kernel);

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
  /* What comes on top for the first inference, and for one after the partition had to make room for
   * another (atoll/delegate.h, AtollPlanResidency). */
  int64_t program_bytes; /* of program memory */
  int64_t upload_bytes;  /* over the link: programs and resident parameters */
  double upload_seconds; /* modelled */
} AtollPartitionInfo;
ATOLL_EXPORT int32_t AtollInterpreterGetPartitionCount(const AtollInterpreter* interpreter);
ATOLL_EXPORT AtollStatus AtollInterpreterGetPartitionInfo(const AtollInterpreter* interpreter,
                                                          int32_t index, AtollPartitionInfo* info);

typedef enum AtollMemoryKind {
  ATOLL_MEMORY_TENSOR = 0,
  ATOLL_MEMORY_RESIDENT_PARAMETERS = 1,
  ATOLL_MEMORY_STREAMED_PARAMETERS = 2,
  ATOLL_MEMORY_SCRATCH = 3
} AtollMemoryKind;

/* Bytes of on-chip memory that a partition reserves during some instructions of its program. */
typedef struct AtollMemoryBlock {
  AtollMemoryKind kind;
  int32_t tensor; /* index in the file; -1 unless it is one */
  int32_t node;   /* that writes the tensor (-1: an input) or owns the parameters or scratch */
  int64_t offset; /* resident parameters count from 0 by themselves, everything else together */
  int64_t bytes;
  int32_t first_instruction;
  int32_t last_instruction;
} AtollMemoryBlock;
/* All blocks of a partition's plan; none if it came compiled with the model, which does not keep
 * the plan. The array lives as long as the interpreter. */
ATOLL_EXPORT AtollStatus AtollInterpreterGetPartitionMemory(const AtollInterpreter* interpreter,
                                                            int32_t index,
                                                            const AtollMemoryBlock** blocks,
                                                            int32_t* count);

/* Any tensor of the model by its index in the file; name, type, shape and quantization only
 * (data may be NULL or reused by other tensors). NULL if out of range. */
ATOLL_EXPORT int32_t AtollInterpreterGetTensorCount(const AtollInterpreter* interpreter);
ATOLL_EXPORT const AtollTensor* AtollInterpreterGetTensor(const AtollInterpreter* interpreter,
                                                          int32_t index);
/* Nonzero if the tensor is stored in the model file (weights, biases, shapes). */
ATOLL_EXPORT int32_t AtollTensorIsConstant(const AtollTensor* tensor);
/* Nonzero if an invocation leaves something in it for the next, until
 * AtollInterpreterResetVariableTensors. */
ATOLL_EXPORT int32_t AtollTensorIsVariable(const AtollTensor* tensor);

typedef struct AtollMemoryInfo {
  int64_t arena_bytes;    /* one block for all intermediate tensors */
  int64_t constant_bytes; /* used in place from the model file */
  /* What no plan of the arena can go below: the most bytes that live at one time. */
  int64_t arena_lower_bound_bytes;
  /* Weights that are there a second time, packed (AtollDelegateCompileModel), and those of them
   * that the CPU's kernels use; the others were packed for another CPU. */
  int64_t packed_weight_bytes;
  int64_t used_packed_weight_bytes;
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
  /* Measured on the host, all partitions together: until the device was free for the request, until
   * the last byte had been sent, until the first one came back, until the last one had come. */
  int64_t queue_ns;
  int64_t link_out_ns;
  int64_t compute_ns;
  int64_t link_in_ns;
} AtollInvokeInfo;
ATOLL_EXPORT AtollStatus AtollInterpreterGetInvokeInfo(const AtollInterpreter* interpreter,
                                                       AtollInvokeInfo* info);

/* Bytes of inputs and outputs, programs and parameters that this computer's CPU copied in the last
 * completed invocation because the device could not reach them where they are; 0 on links that the
 * CPU feeds anyway, as USB. */
ATOLL_EXPORT AtollStatus AtollInterpreterGetCopiedBytes(const AtollInterpreter* interpreter,
                                                        int64_t* bytes);

/* ---- Taps and traces ------------------------------------------------------------------------ */

/* Called during Invoke, on its thread, for each tensor that a step has just written: operators
 * on the CPU one by one, a device partition as one step (tensors inside it exist only on the
 * device). The data is valid during the call, and may be changed: the steps that follow read what
 * the call leaves in it. */
typedef void (*AtollTensorTap)(int32_t tensor_index, AtollTensor* tensor, void* user_data);
ATOLL_EXPORT void AtollInterpreterSetTensorTap(AtollInterpreter* interpreter, AtollTensorTap tap,
                                               void* user_data);

typedef enum AtollTraceKind {
  ATOLL_TRACE_NODE = 0,   /* host: a node on the CPU, on the invoking thread */
  ATOLL_TRACE_WORKER = 1, /* host: what another thread did for that node */
  ATOLL_TRACE_SUBMIT = 2, /* host: a partition's request is handed to the device */
  ATOLL_TRACE_WAIT = 3,   /* host: until it has completed; an emulated device computes in here */
  ATOLL_TRACE_DEVICE = 4  /* device: one part of it is busy with one instruction */
} AtollTraceKind;

/* What of a device is busy: a direction of its link, or a unit (docs/isa.md, section 5). */
typedef enum AtollDeviceUnit {
  ATOLL_UNIT_LINK_OUT = 0, /* bytes to the device */
  ATOLL_UNIT_INFEED = 1,
  ATOLL_UNIT_DMA = 2,
  ATOLL_UNIT_ARRAY = 3,
  ATOLL_UNIT_VECTOR = 4,
  ATOLL_UNIT_OUTFEED = 5,
  ATOLL_UNIT_LINK_IN = 6,  /* bytes from the device */
  ATOLL_UNIT_SEQUENCER = 7 /* END */
} AtollDeviceUnit;
ATOLL_EXPORT const char* AtollDeviceUnitName(AtollDeviceUnit unit); /* "link out" */

/* Measured on this computer. */
typedef struct AtollHostTime {
  int32_t thread;   /* 0: the invoking one; 1, 2, ...: others of the interpreter's */
  int64_t start_ns; /* monotonic clock */
  int64_t duration_ns;
} AtollHostTime;

/* Modelled: what the device's timing model says, in cycles of the device since the start of the
 * partition's request. Has nothing to do with the host's clock. */
typedef struct AtollDeviceTime {
  AtollDeviceUnit unit;
  int32_t instruction; /* index in the partition's program */
  int64_t issue_cycle;
  int64_t start_cycle;
  int64_t end_cycle;
  int64_t bytes; /* over the link, or of on-chip memory read and written */
  int64_t macs;  /* multiply-accumulates */
} AtollDeviceTime;

typedef struct AtollTraceEvent {
  AtollTraceKind kind;
  const char* name;       /* operator, mnemonic, "submit", "wait"; valid during the call */
  int32_t partition;      /* -1: on the CPU */
  int32_t node;           /* -1: belongs to no node */
  AtollHostTime host;     /* zeros in ATOLL_TRACE_DEVICE */
  AtollDeviceTime device; /* zeros in all others */
} AtollTraceEvent;
/* Called during Invoke, on its thread, at the end of each step, for everything that took time in
 * it. The device's events are those of every instruction of the partition's program in order; one
 * that moves bytes over the link has a second event for that. NULL ends the trace. */
typedef void (*AtollTraceCallback)(const AtollTraceEvent* event, void* user_data);
ATOLL_EXPORT void AtollInterpreterSetTrace(AtollInterpreter* interpreter,
                                           AtollTraceCallback callback, void* user_data);

/* Runs a few seconds' worth of built-in checks: every kernel of this CPU against the reference
 * arithmetic. ATOLL_INTERNAL, with a sentence, if one differs. */
ATOLL_EXPORT AtollStatus AtollSelfTest(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ATOLL_RUNTIME_H_ */
