/* SPDX-License-Identifier: Apache-2.0
 *
 * Atoll's delegate: runs what it can of a model on an accelerator. Conventions as in
 * atoll/runtime.h. A delegate may be shared by interpreters on any threads, which keep it open:
 * it may be deleted before them.
 *
 * libatoll-core has the emulated device alone, and nothing runs in the place of models that were
 * compiled for a Coral (AtollInterpreterGetSubstitute). There, other devices are ATOLL_NOT_FOUND;
 * faults, recordings, "+stepped", AtollDiagnose, AtollDeviceSelfTest, AtollEstimateCoral,
 * AtollDelegateCompileModel, AtollAssemble and AtollExecutablesDisassemble are ATOLL_UNSUPPORTED,
 * and so is ATOLL_CPU=avx512vnni: it has no kernels for AVX-512, and uses those for AVX-VNNI in its
 * place.
 */
#ifndef ATOLL_DELEGATE_H_
#define ATOLL_DELEGATE_H_

#include "atoll/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct AtollDelegateOptions {
  size_t struct_size;
  /* "auto": a broker that is there, else the first real Atoll-1 that can be opened, else the
   * emulator. "emu", "emu:PROFILE": the emulator; a profile is one of AtollListDevices or the path
   * of a .json file (docs/isa.md, section 1); with "+stepped" behind it cycle by cycle, which takes
   * far longer. "usb", "usb:N", "usb:2-3.1" (bus and ports), "pci:N": a real device. "broker": one
   * that programs share. "cpu": no device; interpreters that get this delegate run everything on
   * the CPU, as without one. NULL means "auto". All names: docs/devices.md. */
  const char* device;
  /* Host threads that the emulator computes with, at most 256; 0: a sensible default. */
  int32_t num_threads;
  /* Most operators in a partition; 0: as many as go together, 1: each by itself, which shows every
   * tensor between them. If it is not 0, models that were compiled before are partitioned anew. */
  int32_t max_partition_nodes;
  /* What becomes of requests when the device is lost and does not come back within seconds, where
   * it is reset, opened anew and sent everything again: "fallback": they complete on an emulated
   * device, with the same bytes; "replay": they fail with ATOLL_DEVICE_LOST; "fail": they do so at
   * once. Later ones look for the device again. NULL means "fallback". */
  const char* on_device_loss;
  /* What shall go wrong between the host and the device: "seed:N:P" or the path of a script
   * (docs/faults.md); NULL: nothing. */
  const char* faults;
  /* A file to record the session with the device in (docs/recording.md), and a text of one line to
   * keep with it; "replay:FILE" as `device` plays it back. NULL: none. */
  const char* record;
  const char* record_note;
  /* Cuts models into so many stages of about equal time, each on a device of its own of those in
   * `device`, "emu,emu"; interpreters that run at the same time keep them busy. 0 or 1: not. */
  int32_t stages;
  /* Of a Coral: its clock, "low", "medium", "high" or "max" (63, 125, 250, 500 MHz). At "max" it
   * gets hot; "high" is what Google's standard package sets. NULL means "max". */
  const char* performance;
  /* Of a Coral: the file with its firmware; NULL: where docs/coral.md says. */
  const char* firmware;
} AtollDelegateOptions;
#define ATOLL_DELEGATE_OPTIONS_INIT \
  { sizeof(AtollDelegateOptions), NULL, 0, 0, NULL, NULL, NULL, NULL, 0, NULL, NULL }

/* Opens the device. ATOLL_NOT_FOUND if there is none of that name, ATOLL_INVALID_ARGUMENT, with
 * what was probably meant, if that is no name of a device. `options` may be NULL. */
ATOLL_EXPORT AtollStatus AtollDelegateCreate(const AtollDelegateOptions* options,
                                             AtollDelegate** delegate);
ATOLL_EXPORT void AtollDelegateDelete(AtollDelegate* delegate);

typedef struct AtollDeviceInfo {
  const char* name;        /* "emu", "usb:2-3": what --device would take */
  const char* description; /* "emulated Atoll-1, 64x64 at 500 MHz, 8 MiB, USB 3" */
  int32_t available;       /* nonzero: can be opened now */
  int32_t is_default;      /* nonzero: what "auto" takes */
  /* What it is made of; zeros in AtollListDevices, which opens nothing. */
  int32_t array_rows; /* of its array: at most rows * columns multiply-accumulates a cycle */
  int32_t array_columns;
  int64_t clock_hz;
  int64_t memory_bytes; /* on chip, for parameters and activations */
  int64_t link_bytes_per_second;
  /* Why "auto" took this one although a real device is plugged in; else "". */
  const char* note;
} AtollDeviceInfo;

/* The device that a delegate runs on; the CPU has zeros where it is made of nothing. Strings live
 * as long as the delegate. */
ATOLL_EXPORT AtollStatus AtollDelegateGetDeviceInfo(const AtollDelegate* delegate,
                                                    AtollDeviceInfo* info);

/* What a program on another computer needs, beside AtollDeviceInfo, to compile for the device. */
typedef struct AtollDeviceDetails {
  const char* family;             /* "Atoll-1", "Coral"; "" for the CPU */
  int32_t isa_version;            /* of the instructions that it takes (docs/isa.md) */
  int64_t program_memory_bytes;   /* on chip, for instructions */
  int64_t request_timeout_min_ms; /* what a request gets at least; not 0 for slow emulators */
  double host_seconds;            /* modelled: that its host spends on a request beside transfers */
} AtollDeviceDetails;
/* Strings live as long as the program. */
ATOLL_EXPORT AtollStatus AtollDelegateGetDeviceDetails(const AtollDelegate* delegate,
                                                       AtollDeviceDetails* details);

/* Nonzero if this computer plays the device: its times are modelled. 0 for the CPU, and for NULL.
 */
ATOLL_EXPORT int32_t AtollDelegateIsEmulated(const AtollDelegate* delegate);

/* What went wrong with a device so far, each event counted once. */
typedef struct AtollDeviceHealth {
  int64_t failures;   /* attempts at a request that did not end well */
  int64_t resets;     /* after which the device was there again */
  int64_t reopenings; /* after it had been away, or would not be reset */
  int64_t losses;     /* times that it did not come back in time */
  int64_t replays;    /* requests sent again, each time counted */
  int64_t fallbacks;  /* requests that the stand-in completed */
} AtollDeviceHealth;
ATOLL_EXPORT AtollStatus AtollDelegateGetDeviceHealth(const AtollDelegate* delegate,
                                                      AtollDeviceHealth* health);

/* Looks at what is there now; the CPU comes last. Strings stay valid until the next call on the
 * same thread. */
ATOLL_EXPORT AtollStatus AtollListDevices(const AtollDeviceInfo** devices, int32_t* count);

/* ---- What is wrong, and whether it computes right (docs/doctor.md) ------------------------------
 */

typedef enum AtollFindingLevel {
  ATOLL_FINDING_FINE = 0,    /* a device that can be used */
  ATOLL_FINDING_NOTE = 1,    /* nothing is wrong */
  ATOLL_FINDING_WARNING = 2, /* it works, but not as well as it could */
  ATOLL_FINDING_ERROR = 3    /* a device that is there cannot be used */
} AtollFindingLevel;

typedef struct AtollFinding {
  AtollFindingLevel level;
  const char* code;    /* "no_permission": for programs */
  const char* device;  /* "usb:2-3.1", "pci:0000:01:00.0"; "" if it is about none */
  const char* message; /* what is the case */
  const char* fix;     /* what to do; "" for nothing */
} AtollFinding;

/* Why devices cannot be used, or are slower than they could be. Opens none on USB; those on PCIe
 * that look usable are opened and closed again. `root` is a folder that stands for /, of which
 * nothing is opened; NULL for this computer. The array stays valid until the next call on the same
 * thread. */
ATOLL_EXPORT AtollStatus AtollDiagnose(const char* root, const AtollFinding** findings,
                                       int32_t* count);

typedef struct AtollSelfTestResult {
  const char* device;  /* "cpu", "usb:2-3", or an emulator and its kernels: "emu, avx2 kernels" */
  const char* name;    /* what was computed: "CONV_2D int8" */
  AtollStatus status;  /* ATOLL_OK, ATOLL_INTERNAL if it is wrong, or what the device said */
  const char* failure; /* in a sentence; "" */
  double seconds;
} AtollSelfTestResult;

/* Computes what has a known answer: on the CPU, on an emulator with the kernels of every level that
 * this CPU has (but not if `device` is "cpu"), and on `device` (as in AtollDelegateOptions) if it
 * is a real one; each instruction of an Atoll-1 on each device. Takes a few seconds at most. Errors
 * are those of opening `device`; what is wrong is in the results. The array stays valid until the
 * next call on the same thread. */
ATOLL_EXPORT AtollStatus AtollDeviceSelfTest(const char* device,
                                             const AtollSelfTestResult** results, int32_t* count);

/* Receives the bytes that a function makes. They are valid during the call. */
typedef void (*AtollBytesCallback)(const void* data, size_t size, void* user_data);

/* The text that was kept with a recorded session; `callback` is called once. */
ATOLL_EXPORT AtollStatus AtollReadRecordingNote(const char* path, AtollBytesCallback callback,
                                                void* user_data);

/* The model with its partitions compiled for the delegate's device, and the weights of what stays
 * on the CPU packed for this one, as the bytes of a .tflite file: `callback` is called once with
 * all of them. The file loads without a compile step on such a device, without packing on such a
 * CPU, and runs on all others as the original does. NULL as `delegate` leaves everything to the
 * CPU. ATOLL_UNSUPPORTED if nothing of the model can run on the device. */
ATOLL_EXPORT AtollStatus AtollDelegateCompileModel(const AtollDelegate* delegate,
                                                   const AtollModel* model,
                                                   AtollBytesCallback callback, void* user_data);

/* ---- Executables and their assembly (docs/executable.md, docs/assembly.md) ----------------------
 */

/* Compiled partitions to look into. Immutable; may be shared by threads. */
typedef struct AtollExecutables AtollExecutables;

/* What the bytes of a file hold: an executable, or those of a compiled model; a model that is not
 * compiled has none. The bytes are copied. */
ATOLL_EXPORT AtollStatus AtollExecutablesCreate(const void* data, size_t size,
                                                AtollExecutables** executables);
/* Compiles the model for the delegate's device; none if nothing of it can run there. */
ATOLL_EXPORT AtollStatus AtollExecutablesCreateForDevice(const AtollDelegate* delegate,
                                                         const AtollModel* model,
                                                         AtollExecutables** executables);
ATOLL_EXPORT void AtollExecutablesDelete(AtollExecutables* executables);
ATOLL_EXPORT int32_t AtollExecutablesGetCount(const AtollExecutables* executables);

typedef struct AtollExecutableInfo {
  const char* name;
  int32_t isa_version;
  int32_t array_rows, array_columns; /* that it was compiled for */
  int32_t caching_instruction_count; /* once after upload */
  int32_t inference_instruction_count;
  int64_t resident_parameter_bytes;
  int64_t streamed_parameter_bytes;
  int64_t activation_bytes;
  int64_t input_bytes;
  int64_t output_bytes;
  int64_t estimated_cycles; /* of an inference; modelled */
} AtollExecutableInfo;
ATOLL_EXPORT AtollStatus AtollExecutablesGetInfo(const AtollExecutables* executables, int32_t index,
                                                 AtollExecutableInfo* info);

typedef enum AtollProgram { ATOLL_CACHING_PROGRAM = 0, ATOLL_INFERENCE_PROGRAM = 1 } AtollProgram;

typedef struct AtollInstructionInfo {
  const char* mnemonic;
  const char* unit;      /* "array" */
  int64_t cycles;        /* that it executes; modelled */
  int32_t node;          /* that it comes from, in the partition, or -1 */
  const char* node_name; /* "node 4 (CONV_2D) 'conv1/out'", or "" if that is not known */
  const char* text;      /* a line of assembly, without operands that are 0 */
} AtollInstructionInfo;
/* `text` stays valid until the next call on the same thread. */
ATOLL_EXPORT AtollStatus AtollExecutablesGetInstruction(const AtollExecutables* executables,
                                                        int32_t index, AtollProgram program,
                                                        int32_t position,
                                                        AtollInstructionInfo* info);
typedef enum AtollAssemblyParameters {
  ATOLL_OMIT_PARAMETERS = 0, /* how many there are; the text can be read, but not assembled again */
  ATOLL_WRITE_PARAMETERS = 1
} AtollAssemblyParameters;
/* A whole executable as text; `callback` is called once. */
ATOLL_EXPORT AtollStatus AtollExecutablesDisassemble(const AtollExecutables* executables,
                                                     int32_t index,
                                                     AtollAssemblyParameters parameters,
                                                     AtollBytesCallback callback, void* user_data);

/* The text of one executable as the bytes of an executable file: `callback` is called once. A
 * mistake is ATOLL_CORRUPT_MODEL with line, column and what could be written instead. */
ATOLL_EXPORT AtollStatus AtollAssemble(const char* text, size_t size, AtollBytesCallback callback,
                                       void* user_data);

/* ---- A real Coral -------------------------------------------------------------------------------
 */

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

/* Several models that take turns on one device: which of them stay on it, and what it costs to
 * bring one back that had to make room. The device's own policy (docs/architecture.md) decides who
 * goes; seconds are modelled, those of operators on the CPU not among them. */
typedef struct AtollResidencyModel {
  int64_t program_bytes;    /* of program memory */
  int64_t parameter_bytes;  /* resident ones, of on-chip memory */
  int64_t activation_bytes; /* of on-chip memory that all models share */
  int64_t upload_bytes;     /* over the link, when nothing of it is on the device */
  double upload_seconds;
  double inference_seconds; /* when all of it is on the device */
  int32_t in_subset;        /* nonzero: one of those that would stay if there were no others */
} AtollResidencyModel;

/* One inference of one model. */
typedef struct AtollResidencyTurn {
  int32_t round; /* from 0 */
  int32_t model;
  int64_t upload_bytes;
  double upload_seconds;
  double seconds;         /* with the upload */
  const int32_t* evicted; /* models, ascending, of which something had to go; may be itself */
  int32_t evicted_count;
} AtollResidencyTurn;

typedef struct AtollResidencyPlan {
  int64_t memory_bytes; /* on chip, for parameters and activations */
  int64_t program_memory_bytes;
  const AtollResidencyModel* models; /* in the order given */
  int32_t model_count;
  int32_t all_fit; /* nonzero: once they are on the device, all models stay */
  /* With so much of either (and enough of the other) all would stay, as they are compiled now; 0:
   * not with 4 GiB. */
  int64_t needed_memory_bytes;
  int64_t needed_program_memory_bytes;
  /* Rounds of one inference of each model in the order given. The first begins with an empty
   * device; those from `repeating_round` on are what then goes on for ever. */
  const AtollResidencyTurn* turns;
  int32_t turn_count;
  int32_t round_count;
  int32_t repeating_round;
  double round_seconds;          /* of one that goes on for ever, on average */
  double resident_round_seconds; /* if all models were on the device */
} AtollResidencyPlan;

/* What happens on the delegate's device when `interpreters`, at most 12 and made on a device like
 * it, take turns. ATOLL_RESOURCE_EXHAUSTED if one was made for a device with more memory,
 * ATOLL_UNSUPPORTED for a Coral. The plan stays valid until the next call on the same thread. */
ATOLL_EXPORT AtollStatus AtollPlanResidency(const AtollDelegate* delegate,
                                            const AtollInterpreter* const* interpreters,
                                            int32_t count, const AtollResidencyPlan** plan);

/* Sums over some time. */
typedef struct AtollActivityCounts {
  int64_t requests; /* completed, failed ones included */
  int64_t failures;
  int64_t device_cycles; /* of programs with their bytes on the link; modelled by the emulator */
  int64_t macs;          /* multiply-accumulates */
  int64_t bytes_to_device;
  int64_t bytes_from_device;
  double busy_seconds; /* measured: a request had the device */
} AtollActivityCounts;

/* What one device of one process of this user does. */
typedef struct AtollActivity {
  int32_t pid;
  const char* command; /* its command line, cut off after some words */
  const char* device;  /* "emu" */
  int32_t array_rows;
  int32_t array_columns;
  int64_t clock_hz;
  int64_t memory_bytes;
  int64_t memory_used_bytes;
  double open_seconds;        /* for so long */
  double running_seconds;     /* the request in progress, for so long; 0: there is none */
  AtollActivityCounts total;  /* since the device was opened */
  AtollActivityCounts recent; /* in the last recent_seconds, about one second */
  double recent_seconds;
  /* Measured, of requests that ended in that time; 0 if none did. */
  double step_min_seconds;
  double step_mean_seconds;
  double step_max_seconds;
} AtollActivity;

/* Looks at what other processes, and this one, publish (docs/activity.md). ATOLL_NOT_FOUND if the
 * environment turns publishing off. The array stays valid until the next call on the same
 * thread. */
ATOLL_EXPORT AtollStatus AtollListActivity(const AtollActivity** activities, int32_t* count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ATOLL_DELEGATE_H_ */
