/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: arguments_test model.tflite
 *
 * Every function of the C interface with NULL and with indices, names and numbers that do not
 * exist: a status, or what the header promises of functions without one, and a sentence.
 * check_calls.sh holds that no function is left out. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/delegate.h"
#include "atoll/runtime.h"

static int failures = 0;
static int checks = 0;

static void Report(int line, const char* what) {
  fprintf(stderr, "%s:%d: %s; last error: '%s'\n", __FILE__, line, what, AtollLastError());
  ++failures;
}

/* Calls, and looks at the result and at whether there is a sentence. Something that succeeds comes
 * in between, so that the sentence is not an older one. */
#define EXPECT_SAYS(condition)                                                     \
  do {                                                                             \
    const char* cpu_name;                                                          \
    ++checks;                                                                      \
    if (AtollCpuName(&cpu_name) != ATOLL_OK) Report(__LINE__, "AtollCpuName");     \
    if (!(condition)) Report(__LINE__, #condition " is false");                    \
    if (AtollLastError()[0] == '\0') Report(__LINE__, #condition " says nothing"); \
  } while (0)
#define EXPECT_INVALID(call) EXPECT_SAYS((call) == ATOLL_INVALID_ARGUMENT)
/* Where the function is not in libatoll-core, this is said whatever the arguments. */
#define EXPECT_REFUSED(call)                                                  \
  do {                                                                        \
    const AtollStatus refused = (call);                                       \
    ++checks;                                                                 \
    if (refused != ATOLL_INVALID_ARGUMENT && refused != ATOLL_UNSUPPORTED) {  \
      Report(__LINE__, #call " is neither invalid nor unsupported");          \
    }                                                                         \
    if (AtollLastError()[0] == '\0') Report(__LINE__, #call " says nothing"); \
  } while (0)
#define EXPECT(condition)                                       \
  do {                                                          \
    ++checks;                                                   \
    if (!(condition)) Report(__LINE__, #condition " is false"); \
  } while (0)
#define REQUIRE(condition) \
  do {                     \
    EXPECT(condition);     \
    if (failures) exit(1); \
  } while (0)

static void Ignore(const void* data, size_t size, void* user_data) {
  (void)data;
  (void)size;
  (void)user_data;
}

/* Without any object. */
static void CheckNull(const char* path) {
  AtollModel* model = NULL;
  AtollDelegate* delegate = NULL;
  AtollInterpreter* interpreter = NULL;
  AtollExecutables* executables = NULL;
  const AtollResidencyPlan* plan = NULL;
  const AtollMemoryBlock* blocks = NULL;
  const AtollActivity* activities = NULL;
  const AtollDeviceInfo* devices = NULL;
  const AtollFinding* findings = NULL;
  const AtollSelfTestResult* results = NULL;
  AtollModelOptions model_options = ATOLL_MODEL_OPTIONS_INIT;
  AtollNodeInfo node;
  AtollNodeKernel kernel;
  AtollPartitionInfo partition;
  AtollMemoryInfo memory;
  AtollInvokeInfo invoke;
  AtollDeviceInfo device;
  AtollDeviceDetails details;
  AtollDeviceHealth health;
  AtollExecutableInfo executable;
  AtollInstructionInfo instruction;
  AtollCoralEstimate estimate;
  AtollSignatureInfo signature;
  AtollChannelQuantization quantization;
  AtollBufferOptions buffer_options = ATOLL_BUFFER_OPTIONS_INIT;
  AtollBuffer* buffer = NULL;
  const char* name = NULL;
  const void* data = NULL;
  size_t size = 0;
  int64_t copied = 0;
  char byte = 0;
  int32_t count = -7;

  EXPECT_INVALID(AtollCpuName(NULL));
  AtollSetLogCallback(NULL, NULL);
  EXPECT(strlen(AtollVersion()) > 0);
  EXPECT(strcmp(AtollStatusName((AtollStatus)1000), "unknown status") == 0);
  EXPECT(strcmp(AtollTypeName((AtollType)1000), "unknown") == 0);
  EXPECT(strcmp(AtollTypeName((AtollType)(256 + ATOLL_INT8)), "unknown") == 0);
  EXPECT(strcmp(AtollTypeName(ATOLL_NO_TYPE), "unknown") == 0);
  EXPECT(strcmp(AtollDeviceUnitName((AtollDeviceUnit)1000), "unknown") == 0);

  EXPECT_INVALID(AtollModelCreateFromFile(NULL, &model));
  EXPECT_INVALID(AtollModelCreateFromFile(path, NULL));
  EXPECT_INVALID(AtollModelCreateFromBuffer(NULL, 4, &model));
  EXPECT_INVALID(AtollModelCreateFromBuffer(path, 4, NULL));
  EXPECT_SAYS(AtollModelCreateFromBuffer(path, 0, &model) == ATOLL_CORRUPT_MODEL);
  EXPECT_INVALID(AtollModelCreateFromFileWithOptions(NULL, &model_options, &model));
  EXPECT_INVALID(AtollModelCreateFromFileWithOptions(path, &model_options, NULL));
  EXPECT_INVALID(AtollModelCreateFromBufferWithOptions(NULL, 4, NULL, &model));
  EXPECT_INVALID(AtollModelCreateFromBufferWithOptions(path, 4, NULL, NULL));
  model_options.copy_file = 1;
  EXPECT_SAYS(AtollModelCreateFromFileWithOptions("/no/such/file", &model_options, &model) ==
              ATOLL_NOT_FOUND);
  EXPECT_SAYS(AtollModelCreateFromFileWithOptions("/", &model_options, &model) == ATOLL_NOT_FOUND);
  AtollModelDelete(NULL);
  EXPECT_SAYS(AtollModelHasOperator(NULL, "ADD") == 0);
  EXPECT_SAYS(AtollModelGetTensorCount(NULL) == 0);
  EXPECT_SAYS(AtollModelGetTensor(NULL, 0) == NULL);
  EXPECT_SAYS(AtollModelGetInputTensorCount(NULL) == 0);
  EXPECT_SAYS(AtollModelGetInputTensor(NULL, 0) == NULL);
  EXPECT_SAYS(AtollModelGetOutputTensorCount(NULL) == 0);
  EXPECT_SAYS(AtollModelGetOutputTensor(NULL, 0) == NULL);
  EXPECT_SAYS(AtollModelGetSignatureCount(NULL) == 0);
  EXPECT_INVALID(AtollModelGetSignature(NULL, 0, &signature));
  EXPECT_SAYS(AtollModelGetMetadataCount(NULL) == 0);
  EXPECT_INVALID(AtollModelGetMetadata(NULL, 0, &name, &data, &size));
  EXPECT(model == NULL);

  EXPECT_INVALID(AtollBufferCreate(NULL, &buffer));
  EXPECT_INVALID(AtollBufferCreate(&buffer_options, NULL));
  buffer_options.kind = ATOLL_BUFFER_CALLER;
  buffer_options.size = 1;
  EXPECT_INVALID(AtollBufferCreate(&buffer_options, &buffer));
  buffer_options.kind = ATOLL_BUFFER_DMABUF;
  EXPECT_SAYS(AtollBufferCreate(&buffer_options, &buffer) == ATOLL_UNSUPPORTED);
  buffer_options.kind = (AtollBufferKind)77;
  EXPECT_SAYS(AtollBufferCreate(&buffer_options, &buffer) == ATOLL_UNSUPPORTED);
  buffer_options.struct_size = 3;
  EXPECT_INVALID(AtollBufferCreate(&buffer_options, &buffer));
  AtollBufferDelete(NULL);
  EXPECT_SAYS(AtollBufferData(NULL) == NULL);
  EXPECT_SAYS(AtollBufferSize(NULL) == 0);
  EXPECT(buffer == NULL);

  EXPECT_INVALID(AtollInterpreterCreate(NULL, NULL, &interpreter));
  AtollInterpreterDelete(NULL);
  EXPECT_INVALID(AtollInterpreterGetSubstitute(NULL, &name));
  EXPECT_INVALID(AtollInterpreterGetCopiedBytes(NULL, &copied));
  EXPECT_INVALID(AtollInterpreterInvoke(NULL));
  EXPECT_INVALID(AtollInterpreterInvokeAsync(NULL));
  EXPECT_INVALID(AtollInterpreterWait(NULL));
  EXPECT_INVALID(AtollInterpreterCancel(NULL));
  EXPECT_INVALID(AtollInterpreterResetVariableTensors(NULL));
  EXPECT_INVALID(AtollInterpreterResizeInput(NULL, 0, &count, 1));
  EXPECT_INVALID(AtollInterpreterAllocateTensors(NULL));
  EXPECT_INVALID(AtollInterpreterSetInputBuffer(NULL, 0, NULL, 0));
  EXPECT_INVALID(AtollInterpreterSetOutputBuffer(NULL, 0, NULL, 0));
  EXPECT_SAYS(AtollInterpreterGetInputTensorCount(NULL) == 0);
  EXPECT_SAYS(AtollInterpreterGetOutputTensorCount(NULL) == 0);
  EXPECT_SAYS(AtollInterpreterGetInputTensor(NULL, 0) == NULL);
  EXPECT_SAYS(AtollInterpreterGetOutputTensor(NULL, 0) == NULL);
  EXPECT_SAYS(AtollInterpreterGetNodeCount(NULL) == 0);
  EXPECT_INVALID(AtollInterpreterGetNodeInfo(NULL, 0, &node));
  EXPECT_INVALID(AtollInterpreterGetNodeKernel(NULL, 0, &kernel));
  EXPECT_SAYS(AtollInterpreterGetPartitionCount(NULL) == 0);
  EXPECT_INVALID(AtollInterpreterGetPartitionInfo(NULL, 0, &partition));
  EXPECT_INVALID(AtollInterpreterGetPartitionMemory(NULL, 0, &blocks, &count));
  EXPECT_SAYS(AtollInterpreterGetTensorCount(NULL) == 0);
  EXPECT_SAYS(AtollInterpreterGetTensor(NULL, 0) == NULL);
  EXPECT_INVALID(AtollInterpreterGetMemoryInfo(NULL, &memory));
  EXPECT_INVALID(AtollInterpreterGetInvokeInfo(NULL, &invoke));
  EXPECT_SAYS((AtollInterpreterSetTensorTap(NULL, NULL, NULL), 1));
  EXPECT_SAYS((AtollInterpreterSetTrace(NULL, NULL, NULL), 1));

  EXPECT_SAYS(strcmp(AtollTensorName(NULL), "") == 0);
  EXPECT_SAYS(AtollTensorType(NULL) == ATOLL_NO_TYPE);
  EXPECT_SAYS(AtollTensorNumDims(NULL) == 0);
  EXPECT_SAYS(AtollTensorDim(NULL, 0) == -1);
  EXPECT_SAYS(AtollTensorDimSignature(NULL, 0) == -2);
  EXPECT_SAYS(AtollTensorIndex(NULL) == -1);
  EXPECT_INVALID(AtollTensorGetChannelQuantization(NULL, &quantization));
  EXPECT_SAYS(AtollTensorByteSize(NULL) == 0);
  EXPECT_SAYS(AtollTensorData(NULL) == NULL);
  EXPECT_SAYS(AtollTensorConstData(NULL) == NULL);
  EXPECT_SAYS(AtollTensorQuantization(NULL).scale == 0);
  EXPECT_SAYS(AtollTensorIsConstant(NULL) == 0);
  EXPECT_SAYS(AtollTensorIsVariable(NULL) == 0);
  EXPECT_INVALID(AtollTensorCopyFromBuffer(NULL, &byte, 1));
  EXPECT_INVALID(AtollTensorCopyToBuffer(NULL, &byte, 1));

  EXPECT_INVALID(AtollDelegateCreate(NULL, NULL));
  AtollDelegateDelete(NULL);
  EXPECT_INVALID(AtollDelegateGetDeviceInfo(NULL, &device));
  EXPECT_INVALID(AtollDelegateGetDeviceDetails(NULL, &details));
  EXPECT_INVALID(AtollDelegateGetDeviceHealth(NULL, &health));
  EXPECT_SAYS(AtollDelegateIsEmulated(NULL) == 0);
  EXPECT_INVALID(AtollListDevices(NULL, &count));
  EXPECT_INVALID(AtollListDevices(&devices, NULL));
  EXPECT_REFUSED(AtollDiagnose(NULL, NULL, &count));
  EXPECT_REFUSED(AtollDiagnose(NULL, &findings, NULL));
  EXPECT_REFUSED(AtollDeviceSelfTest(NULL, &results, &count));
  EXPECT_REFUSED(AtollDeviceSelfTest("emu", NULL, &count));
  EXPECT_REFUSED(AtollDeviceSelfTest("emu", &results, NULL));
  EXPECT_REFUSED(AtollDeviceSelfTest("toaster", &results, &count));
  EXPECT_REFUSED(AtollReadRecordingNote(NULL, Ignore, NULL));
  EXPECT_REFUSED(AtollReadRecordingNote(path, NULL, NULL));
  EXPECT_REFUSED(AtollReadRecordingNote(path, Ignore, NULL));
  EXPECT_REFUSED(AtollDelegateCompileModel(NULL, NULL, Ignore, NULL));
  EXPECT_INVALID(AtollExecutablesCreate(NULL, 0, &executables));
  EXPECT_INVALID(AtollExecutablesCreate(path, 1, NULL));
  EXPECT_SAYS(AtollExecutablesCreate(path, 0, &executables) == ATOLL_CORRUPT_MODEL);
  EXPECT_INVALID(AtollExecutablesCreateForDevice(NULL, NULL, &executables));
  AtollExecutablesDelete(NULL);
  EXPECT(AtollExecutablesGetCount(NULL) == 0);
  EXPECT_INVALID(AtollExecutablesGetInfo(NULL, 0, &executable));
  EXPECT_INVALID(AtollExecutablesGetInstruction(NULL, 0, ATOLL_INFERENCE_PROGRAM, 0, &instruction));
  EXPECT_REFUSED(AtollExecutablesDisassemble(NULL, 0, ATOLL_OMIT_PARAMETERS, Ignore, NULL));
  EXPECT_REFUSED(AtollAssemble(NULL, 0, Ignore, NULL));
  EXPECT_REFUSED(AtollAssemble("END", 3, NULL, NULL));
  EXPECT_REFUSED(AtollEstimateCoral(NULL, NULL, &estimate));
  EXPECT_INVALID(AtollPlanResidency(NULL, NULL, 1, &plan));
  EXPECT_INVALID(AtollListActivity(NULL, &count));
  EXPECT_INVALID(AtollListActivity(&activities, NULL));

  /* Results are untouched on failure. */
  EXPECT(model == NULL && delegate == NULL && interpreter == NULL && executables == NULL);
  EXPECT(plan == NULL && blocks == NULL && activities == NULL && devices == NULL);
  EXPECT(findings == NULL && results == NULL && count == -7);
}

static void CheckDelegateOptions(void) {
  static const char* const kNoDevices[] = {"",     "toaster", "CPU", "usb:",  "usb:x",  "emu:",
                                           "emu,", ",",       "pcx", "coral", "apex_0", "cpu,emu"};
  AtollDelegate* delegate = NULL;
  AtollDelegateOptions options = ATOLL_DELEGATE_OPTIONS_INIT;
  size_t i;

  for (i = 0; i < sizeof(kNoDevices) / sizeof(kNoDevices[0]); ++i) {
    options.device = kNoDevices[i];
    EXPECT_INVALID(AtollDelegateCreate(&options, &delegate));
  }
  options.device = "emu";
  options.num_threads = -1;
  EXPECT_INVALID(AtollDelegateCreate(&options, &delegate));
  options.num_threads = 0;
  options.max_partition_nodes = -1;
  EXPECT_INVALID(AtollDelegateCreate(&options, &delegate));
  options.max_partition_nodes = 0;
  options.stages = -1;
  EXPECT_INVALID(AtollDelegateCreate(&options, &delegate));
  options.stages = 0;
  options.on_device_loss = "shrug";
  EXPECT_INVALID(AtollDelegateCreate(&options, &delegate));
  options.on_device_loss = NULL;
  options.performance = "ludicrous";
  EXPECT_INVALID(AtollDelegateCreate(&options, &delegate));
  options.performance = NULL;
  options.faults = "seed:1";
  EXPECT_REFUSED(AtollDelegateCreate(&options, &delegate));
  options.faults = NULL;
  options.device = "cpu";
  options.stages = 2;
  EXPECT_INVALID(AtollDelegateCreate(&options, &delegate));
  options.stages = 0;
  options.record = "session.pcapng";
  EXPECT_INVALID(AtollDelegateCreate(&options, &delegate));
  options.struct_size = 0;
  EXPECT_INVALID(AtollDelegateCreate(&options, &delegate));
  EXPECT(delegate == NULL);
}

/* With objects that are there. */
static void CheckIndices(const char* path) {
  AtollModel* model = NULL;
  AtollDelegate* delegate = NULL;
  AtollInterpreter* interpreter = NULL;
  AtollExecutables* executables = NULL;
  const AtollInterpreter* none[1] = {NULL};
  const AtollResidencyPlan* plan = NULL;
  const AtollMemoryBlock* blocks = NULL;
  AtollDelegateOptions delegate_options = ATOLL_DELEGATE_OPTIONS_INIT;
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  AtollTensor* input;
  AtollNodeInfo node;
  AtollNodeKernel kernel;
  AtollPartitionInfo partition;
  AtollExecutableInfo executable;
  AtollInstructionInfo instruction;
  AtollCoralEstimate estimate;
  AtollSignatureInfo signature;
  const char* name = NULL;
  const void* data = NULL;
  size_t size = 0;
  char bytes[784] = {0};
  int32_t count = -7;
  size_t i;
  static const int32_t kIndices[] = {-2147483647 - 1, -1, 1000, 2147483647};

  REQUIRE(AtollModelCreateFromFile(path, &model) == ATOLL_OK);
  EXPECT_SAYS(AtollModelHasOperator(model, NULL) == 0);
  EXPECT_INVALID(AtollInterpreterCreate(model, NULL, NULL));
  options.struct_size = 0;
  EXPECT_INVALID(AtollInterpreterCreate(model, &options, &interpreter));
  options.struct_size = sizeof(options);
  options.num_threads = -1;
  EXPECT_INVALID(AtollInterpreterCreate(model, &options, &interpreter));
  options.num_threads = 0;
  EXPECT(interpreter == NULL);
  delegate_options.device = "emu";
  REQUIRE(AtollDelegateCreate(&delegate_options, &delegate) == ATOLL_OK);
  options.delegate = delegate;
  REQUIRE(AtollInterpreterCreate(model, &options, &interpreter) == ATOLL_OK);
  input = AtollInterpreterGetInputTensor(interpreter, 0);
  REQUIRE(input != NULL);

  for (i = 0; i < sizeof(kIndices) / sizeof(kIndices[0]); ++i) {
    EXPECT_SAYS(AtollInterpreterGetInputTensor(interpreter, kIndices[i]) == NULL);
    EXPECT_SAYS(AtollInterpreterGetOutputTensor(interpreter, kIndices[i]) == NULL);
    EXPECT_SAYS(AtollInterpreterGetTensor(interpreter, kIndices[i]) == NULL);
    EXPECT_SAYS(AtollTensorDim(input, kIndices[i]) == -1);
    EXPECT_SAYS(AtollTensorDimSignature(input, kIndices[i]) == -2);
    EXPECT_INVALID(AtollInterpreterResizeInput(interpreter, kIndices[i], NULL, 0));
    EXPECT_INVALID(AtollInterpreterSetInputBuffer(interpreter, kIndices[i], NULL, 0));
    EXPECT_INVALID(AtollInterpreterSetOutputBuffer(interpreter, kIndices[i], NULL, 0));
    EXPECT_SAYS(AtollModelGetTensor(model, kIndices[i]) == NULL);
    EXPECT_SAYS(AtollModelGetInputTensor(model, kIndices[i]) == NULL);
    EXPECT_SAYS(AtollModelGetOutputTensor(model, kIndices[i]) == NULL);
    EXPECT_INVALID(AtollModelGetSignature(model, kIndices[i], &signature));
    EXPECT_INVALID(AtollModelGetMetadata(model, kIndices[i], &name, &data, &size));
    EXPECT_INVALID(AtollInterpreterGetNodeInfo(interpreter, kIndices[i], &node));
    EXPECT_INVALID(AtollInterpreterGetNodeKernel(interpreter, kIndices[i], &kernel));
    EXPECT_INVALID(AtollInterpreterGetPartitionInfo(interpreter, kIndices[i], &partition));
    EXPECT_INVALID(AtollInterpreterGetPartitionMemory(interpreter, kIndices[i], &blocks, &count));
  }
  EXPECT_INVALID(AtollInterpreterGetNodeInfo(interpreter, 0, NULL));
  EXPECT_INVALID(AtollInterpreterGetNodeKernel(interpreter, 0, NULL));
  EXPECT_INVALID(AtollInterpreterGetPartitionInfo(interpreter, 0, NULL));
  EXPECT_INVALID(AtollInterpreterGetPartitionMemory(interpreter, 0, NULL, &count));
  EXPECT_INVALID(AtollInterpreterGetPartitionMemory(interpreter, 0, &blocks, NULL));
  EXPECT_INVALID(AtollInterpreterGetSubstitute(interpreter, NULL));
  EXPECT_INVALID(AtollInterpreterGetCopiedBytes(interpreter, NULL));
  EXPECT_INVALID(AtollInterpreterGetMemoryInfo(interpreter, NULL));
  EXPECT_INVALID(AtollInterpreterGetInvokeInfo(interpreter, NULL));
  EXPECT_INVALID(AtollInterpreterResizeInput(interpreter, 0, NULL, 4));
  EXPECT_INVALID(AtollInterpreterResizeInput(interpreter, 0, NULL, -1));
  EXPECT_INVALID(AtollTensorGetChannelQuantization(input, NULL));
  EXPECT_INVALID(AtollInterpreterWait(interpreter));
  EXPECT(AtollInterpreterCancel(interpreter) == ATOLL_OK); /* nothing */
  EXPECT_INVALID(AtollTensorCopyFromBuffer(input, NULL, 784));
  EXPECT_INVALID(AtollTensorCopyToBuffer(input, NULL, 784));
  EXPECT_INVALID(AtollTensorCopyFromBuffer(input, bytes, 783));
  EXPECT_INVALID(AtollTensorCopyToBuffer(input, bytes, 0));
  EXPECT_INVALID(AtollTensorCopyToBuffer(input, bytes, (size_t)-1));

  EXPECT_INVALID(AtollDelegateGetDeviceInfo(delegate, NULL));
  EXPECT_INVALID(AtollDelegateGetDeviceDetails(delegate, NULL));
  EXPECT_INVALID(AtollDelegateGetDeviceHealth(delegate, NULL));
  EXPECT_REFUSED(AtollDelegateCompileModel(delegate, NULL, Ignore, NULL));
  EXPECT_REFUSED(AtollDelegateCompileModel(delegate, model, NULL, NULL));
  EXPECT_INVALID(AtollExecutablesCreateForDevice(delegate, NULL, &executables));
  EXPECT_INVALID(AtollExecutablesCreateForDevice(NULL, model, &executables));
  EXPECT_INVALID(AtollExecutablesCreateForDevice(delegate, model, NULL));
  REQUIRE(AtollExecutablesCreateForDevice(delegate, model, &executables) == ATOLL_OK);
  for (i = 0; i < sizeof(kIndices) / sizeof(kIndices[0]); ++i) {
    EXPECT_INVALID(AtollExecutablesGetInfo(executables, kIndices[i], &executable));
    EXPECT_INVALID(AtollExecutablesGetInstruction(executables, kIndices[i], ATOLL_INFERENCE_PROGRAM,
                                                  0, &instruction));
    EXPECT_INVALID(AtollExecutablesGetInstruction(executables, 0, ATOLL_INFERENCE_PROGRAM,
                                                  kIndices[i], &instruction));
    EXPECT_REFUSED(
        AtollExecutablesDisassemble(executables, kIndices[i], ATOLL_OMIT_PARAMETERS, Ignore, NULL));
  }
  EXPECT_INVALID(AtollExecutablesGetInfo(executables, 0, NULL));
  EXPECT_INVALID(AtollExecutablesGetInstruction(executables, 0, ATOLL_INFERENCE_PROGRAM, 0, NULL));
  EXPECT_INVALID(AtollExecutablesGetInstruction(executables, 0, (AtollProgram)2, 0, &instruction));
  EXPECT_REFUSED(
      AtollExecutablesDisassemble(executables, 0, (AtollAssemblyParameters)2, Ignore, NULL));
  EXPECT_REFUSED(AtollExecutablesDisassemble(executables, 0, ATOLL_OMIT_PARAMETERS, NULL, NULL));
  EXPECT_REFUSED(AtollEstimateCoral(model, NULL, NULL));
  EXPECT_REFUSED(AtollEstimateCoral(NULL, "usb3", &estimate));
  EXPECT_INVALID(AtollPlanResidency(delegate, NULL, 1, &plan));
  EXPECT_INVALID(AtollPlanResidency(delegate, none, 1, &plan));
  for (i = 0; i < sizeof(kIndices) / sizeof(kIndices[0]); ++i) {
    if (kIndices[i] < 0) EXPECT_INVALID(AtollPlanResidency(delegate, none, kIndices[i], &plan));
  }
  none[0] = interpreter;
  EXPECT_INVALID(AtollPlanResidency(delegate, none, 0, &plan));
  EXPECT_INVALID(AtollPlanResidency(delegate, none, 1, NULL));
  EXPECT(plan == NULL && blocks == NULL && count == -7);

  AtollExecutablesDelete(executables);
  AtollInterpreterDelete(interpreter);
  AtollDelegateDelete(delegate);
  AtollModelDelete(model);
}

static void RunOnce(AtollInterpreter* interpreter, signed char scores[10]) {
  signed char picture[784];
  int i;
  for (i = 0; i < 784; ++i) picture[i] = (signed char)(i * 37 % 256 - 128);
  REQUIRE(AtollTensorCopyFromBuffer(AtollInterpreterGetInputTensor(interpreter, 0), picture,
                                    sizeof(picture)) == ATOLL_OK);
  REQUIRE(AtollInterpreterInvoke(interpreter) == ATOLL_OK);
  REQUIRE(AtollTensorCopyToBuffer(AtollInterpreterGetOutputTensor(interpreter, 0), scores, 10) ==
          ATOLL_OK);
}

/* Handles may be deleted in any order. */
static void CheckDeletedEarly(const char* path) {
  AtollModel* model = NULL;
  AtollDelegate* delegate = NULL;
  AtollInterpreter* interpreters[2] = {NULL, NULL};
  AtollDelegateOptions delegate_options = ATOLL_DELEGATE_OPTIONS_INIT;
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  signed char first[10], again[10];
  int i;

  REQUIRE(AtollModelCreateFromFile(path, &model) == ATOLL_OK);
  delegate_options.device = "emu";
  REQUIRE(AtollDelegateCreate(&delegate_options, &delegate) == ATOLL_OK);
  options.delegate = delegate;
  for (i = 0; i < 2; ++i) {
    REQUIRE(AtollInterpreterCreate(model, &options, &interpreters[i]) == ATOLL_OK);
  }
  RunOnce(interpreters[0], first);
  AtollDelegateDelete(delegate);
  AtollModelDelete(model);
  RunOnce(interpreters[0], again);
  EXPECT(memcmp(first, again, sizeof(first)) == 0);
  AtollInterpreterDelete(interpreters[0]);
  RunOnce(interpreters[1], again);
  EXPECT(memcmp(first, again, sizeof(first)) == 0);
  REQUIRE(AtollInterpreterInvokeAsync(interpreters[1]) == ATOLL_OK);
  AtollInterpreterDelete(interpreters[1]); /* waits */
}

/* "cpu" is a device like the others. */
static void CheckCpu(const char* path) {
  AtollModel* model = NULL;
  AtollDelegate* cpu = NULL;
  AtollInterpreter* interpreter = NULL;
  AtollExecutables* executables = NULL;
  const AtollInterpreter* interpreters[1];
  const AtollResidencyPlan* plan = NULL;
  const AtollDeviceInfo* devices = NULL;
  AtollDelegateOptions delegate_options = ATOLL_DELEGATE_OPTIONS_INIT;
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  AtollDeviceInfo info;
  AtollDeviceDetails details;
  AtollDeviceHealth health;
  signed char scores[10];
  int32_t count = 0;

  delegate_options.device = "cpu";
  REQUIRE(AtollDelegateCreate(&delegate_options, &cpu) == ATOLL_OK);
  REQUIRE(AtollDelegateGetDeviceInfo(cpu, &info) == ATOLL_OK);
  EXPECT(strcmp(info.name, "cpu") == 0 && strstr(info.description, "kernels") != NULL);
  EXPECT(info.array_rows == 0 && info.available != 0 && strcmp(info.note, "") == 0);
  REQUIRE(AtollDelegateGetDeviceDetails(cpu, &details) == ATOLL_OK);
  EXPECT(strcmp(details.family, "") == 0 && details.program_memory_bytes == 0);
  REQUIRE(AtollListDevices(&devices, &count) == ATOLL_OK && count > 1);
  EXPECT(strcmp(devices[count - 1].name, "cpu") == 0);
  EXPECT(strcmp(devices[count - 1].description, info.description) == 0);
  EXPECT(devices[count - 1].available != 0 && devices[count - 1].is_default == 0);
  EXPECT(AtollDelegateIsEmulated(cpu) == 0);
  EXPECT(AtollDelegateGetDeviceHealth(cpu, &health) == ATOLL_OK && health.failures == 0);
  REQUIRE(AtollModelCreateFromFile(path, &model) == ATOLL_OK);
  options.delegate = cpu;
  REQUIRE(AtollInterpreterCreate(model, &options, &interpreter) == ATOLL_OK);
  EXPECT(AtollInterpreterGetPartitionCount(interpreter) == 0);
  interpreters[0] = interpreter;
  EXPECT_INVALID(AtollPlanResidency(cpu, interpreters, 1, &plan));
  EXPECT_INVALID(AtollExecutablesCreateForDevice(cpu, model, &executables));
  AtollDelegateDelete(cpu);
  RunOnce(interpreter, scores);
  AtollInterpreterDelete(interpreter);
  AtollModelDelete(model);
}

/* Programs that were built with an older header, or with a newer one: structs that end after any
 * field, with garbage behind, and such as have more. */
typedef union AnyOptions {
  size_t struct_size;
  AtollModelOptions model;
  AtollInterpreterOptions interpreter;
  AtollDelegateOptions delegate;
  AtollBufferOptions buffer;
  unsigned char bytes[256];
} AnyOptions;

typedef AtollStatus (*UseOptions)(const AnyOptions* options, const char* path);

static AtollStatus UseModelOptions(const AnyOptions* options, const char* path) {
  AtollModel* model = NULL;
  const AtollStatus status = AtollModelCreateFromFileWithOptions(path, &options->model, &model);
  AtollModelDelete(model);
  return status;
}
static AtollStatus UseInterpreterOptions(const AnyOptions* options, const char* path) {
  AtollModel* model = NULL;
  AtollInterpreter* interpreter = NULL;
  AtollStatus status;
  REQUIRE(AtollModelCreateFromFile(path, &model) == ATOLL_OK);
  status = AtollInterpreterCreate(model, &options->interpreter, &interpreter);
  AtollInterpreterDelete(interpreter);
  AtollModelDelete(model);
  return status;
}
static AtollStatus UseDelegateOptions(const AnyOptions* options, const char* path) {
  AtollDelegate* delegate = NULL;
  const AtollStatus status = AtollDelegateCreate(&options->delegate, &delegate);
  (void)path;
  AtollDelegateDelete(delegate);
  return status;
}
static AtollStatus UseBufferOptions(const AnyOptions* options, const char* path) {
  AtollBuffer* buffer = NULL;
  const AtollStatus status = AtollBufferCreate(&options->buffer, &buffer);
  (void)path;
  AtollBufferDelete(buffer);
  return status;
}

static void CheckOptionSizes(UseOptions use, const AnyOptions* defaults, const size_t* ends,
                             size_t count, const char* path) {
  const size_t size = defaults->struct_size;
  AnyOptions options;
  size_t i, k;
  for (i = 0; i < count; ++i) {
    memcpy(&options, defaults, sizeof(options));
    memset(options.bytes + ends[i], 0xA5, sizeof(options) - ends[i]);
    options.struct_size = ends[i];
    EXPECT(use(&options, path) == ATOLL_OK);
  }
  for (i = 0; i < size + 64; ++i) {
    int is_end = 0;
    memcpy(&options, defaults, sizeof(options));
    memset(options.bytes + size, 0, sizeof(options) - size);
    options.struct_size = i;
    for (k = 0; k < count; ++k) is_end |= i == ends[k] || i == (ends[k] + 7) / 8 * 8;
    if (is_end || i >= size) {
      EXPECT(use(&options, path) == ATOLL_OK);
    } else {
      EXPECT_INVALID(use(&options, path));
    }
    if (i <= size) continue;
    options.bytes[i - 1] = 1;
    EXPECT_INVALID(use(&options, path));
  }
  options.struct_size = (size_t)-1;
  EXPECT_INVALID(use(&options, path));
}

#define END_OF(Struct, field) (offsetof(Struct, field) + sizeof(((Struct*)NULL)->field))
#define CHECK_OPTION_SIZES(use, init, ...)                                        \
  do {                                                                            \
    static const size_t ends[] = {sizeof(size_t), __VA_ARGS__};                   \
    AnyOptions defaults;                                                          \
    memset(&defaults, 0, sizeof(defaults));                                       \
    init;                                                                         \
    CheckOptionSizes(use, &defaults, ends, sizeof(ends) / sizeof(ends[0]), path); \
  } while (0)

static void CheckOtherVersions(const char* path) {
  const AtollModelOptions model = ATOLL_MODEL_OPTIONS_INIT;
  const AtollInterpreterOptions interpreter = ATOLL_INTERPRETER_OPTIONS_INIT;
  AtollDelegateOptions delegate = ATOLL_DELEGATE_OPTIONS_INIT;
  const AtollBufferOptions buffer = ATOLL_BUFFER_OPTIONS_INIT;
  CHECK_OPTION_SIZES(
      UseModelOptions, defaults.model = model, END_OF(AtollModelOptions, input_shapes),
      END_OF(AtollModelOptions, input_shape_count), END_OF(AtollModelOptions, copy_file));
  CHECK_OPTION_SIZES(
      UseInterpreterOptions, defaults.interpreter = interpreter,
      END_OF(AtollInterpreterOptions, num_threads), END_OF(AtollInterpreterOptions, delegate),
      END_OF(AtollInterpreterOptions, priority), END_OF(AtollInterpreterOptions, residency_set),
      END_OF(AtollInterpreterOptions, fallback), END_OF(AtollInterpreterOptions, keep_all_tensors));
  delegate.device = "cpu";
  CHECK_OPTION_SIZES(
      UseDelegateOptions, defaults.delegate = delegate, END_OF(AtollDelegateOptions, device),
      END_OF(AtollDelegateOptions, num_threads), END_OF(AtollDelegateOptions, max_partition_nodes),
      END_OF(AtollDelegateOptions, on_device_loss), END_OF(AtollDelegateOptions, faults),
      END_OF(AtollDelegateOptions, record), END_OF(AtollDelegateOptions, record_note),
      END_OF(AtollDelegateOptions, stages), END_OF(AtollDelegateOptions, performance),
      END_OF(AtollDelegateOptions, firmware));
  CHECK_OPTION_SIZES(UseBufferOptions, defaults.buffer = buffer, END_OF(AtollBufferOptions, kind),
                     END_OF(AtollBufferOptions, fd), END_OF(AtollBufferOptions, data),
                     END_OF(AtollBufferOptions, size), END_OF(AtollBufferOptions, offset),
                     END_OF(AtollBufferOptions, release), END_OF(AtollBufferOptions, user_data));
}

/* What came after AtollInterpreterCreate: other shapes, memory of the caller's. */
static int released = 0;
static void CountRelease(void* user_data) { ++*(int*)user_data; }

static void CheckShapesAndBuffers(const char* path, const char* device) {
  const int32_t wide[] = {1, 40, 44, 1}, as_it_was[] = {1, 28, 28, 1}, flat[] = {784};
  AtollModel* model = NULL;
  AtollDelegate* delegate = NULL;
  AtollInterpreter* interpreter = NULL;
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  AtollDelegateOptions delegate_options = ATOLL_DELEGATE_OPTIONS_INIT;
  AtollBufferOptions buffer_options = ATOLL_BUFFER_OPTIONS_INIT;
  AtollBuffer *pixels = NULL, *scores = NULL;
  AtollTensor* input;
  const AtollTensor* output;
  signed char want[10], got[10], picture[784 + 3];
  int i;

  REQUIRE(AtollModelCreateFromFile(path, &model) == ATOLL_OK);
  delegate_options.device = device;
  REQUIRE(AtollDelegateCreate(&delegate_options, &delegate) == ATOLL_OK);
  options.delegate = delegate;
  REQUIRE(AtollInterpreterCreate(model, &options, &interpreter) == ATOLL_OK);
  RunOnce(interpreter, want);
  input = AtollInterpreterGetInputTensor(interpreter, 0);
  output = AtollInterpreterGetOutputTensor(interpreter, 0);

  /* Not ready until there is memory for the shape. */
  REQUIRE(AtollInterpreterResizeInput(interpreter, 0, wide, 4) == ATOLL_OK);
  EXPECT_INVALID(AtollInterpreterInvoke(interpreter));
  EXPECT_INVALID(AtollInterpreterInvokeAsync(interpreter));
  EXPECT_SAYS(AtollTensorData(input) == NULL);
  EXPECT_SAYS(AtollTensorConstData(output) == NULL);
  EXPECT_INVALID(AtollTensorCopyFromBuffer(input, picture, 784));
  REQUIRE(AtollInterpreterAllocateTensors(interpreter) == ATOLL_OK);
  EXPECT(AtollInterpreterGetInputTensor(interpreter, 0) == input);
  EXPECT(AtollTensorByteSize(input) == 40 * 44 && AtollTensorDim(input, 2) == 44);
  EXPECT(AtollTensorByteSize(output) == 10 && AtollTensorData(input) != NULL);
  EXPECT(AtollInterpreterInvoke(interpreter) == ATOLL_OK);
  /* A shape that it cannot have, and back. */
  REQUIRE(AtollInterpreterResizeInput(interpreter, 0, flat, 1) == ATOLL_OK);
  EXPECT_INVALID(AtollInterpreterAllocateTensors(interpreter));
  EXPECT_INVALID(AtollInterpreterInvoke(interpreter));
  REQUIRE(AtollInterpreterResizeInput(interpreter, 0, as_it_was, 4) == ATOLL_OK);
  REQUIRE(AtollInterpreterAllocateTensors(interpreter) == ATOLL_OK);
  REQUIRE(AtollInterpreterAllocateTensors(interpreter) == ATOLL_OK);
  RunOnce(interpreter, got);
  EXPECT(memcmp(want, got, sizeof(got)) == 0);

  /* The caller's pixels, at an odd place, and Atoll's scores. */
  for (i = 0; i < 784; ++i) picture[i + 3] = (signed char)(i * 37 % 256 - 128);
  buffer_options.kind = ATOLL_BUFFER_CALLER;
  buffer_options.data = picture;
  buffer_options.size = sizeof(picture);
  buffer_options.release = CountRelease;
  buffer_options.user_data = &released;
  released = 0;
  REQUIRE(AtollBufferCreate(&buffer_options, &pixels) == ATOLL_OK);
  EXPECT(AtollBufferData(pixels) == picture && AtollBufferSize(pixels) == sizeof(picture));
  buffer_options.kind = ATOLL_BUFFER_HEAP;
  buffer_options.size = 10;
  REQUIRE(AtollBufferCreate(&buffer_options, &scores) == ATOLL_OK);
  EXPECT_INVALID(AtollInterpreterSetInputBuffer(interpreter, 0, pixels, 4));
  EXPECT_INVALID(AtollInterpreterSetInputBuffer(interpreter, 0, pixels, (size_t)-1));
  EXPECT_INVALID(AtollInterpreterSetOutputBuffer(interpreter, 0, scores, 1));
  REQUIRE(AtollInterpreterSetInputBuffer(interpreter, 0, pixels, 3) == ATOLL_OK);
  REQUIRE(AtollInterpreterSetOutputBuffer(interpreter, 0, scores, 0) == ATOLL_OK);
  AtollBufferDelete(pixels);
  EXPECT(released == 0);
  REQUIRE(AtollInterpreterInvoke(interpreter) == ATOLL_OK);
  EXPECT(memcmp(want, AtollBufferData(scores), 10) == 0);
  memset(AtollBufferData(scores), 0, 10);
  picture[3] = (signed char)~picture[3];
  REQUIRE(AtollInterpreterInvoke(interpreter) == ATOLL_OK);
  picture[3] = (signed char)~picture[3];
  REQUIRE(AtollInterpreterInvoke(interpreter) == ATOLL_OK);
  EXPECT(memcmp(want, AtollBufferData(scores), 10) == 0);
  /* And the interpreter's own again. */
  REQUIRE(AtollInterpreterSetInputBuffer(interpreter, 0, NULL, 0) == ATOLL_OK);
  EXPECT(released == 1);
  REQUIRE(AtollInterpreterSetOutputBuffer(interpreter, 0, NULL, 0) == ATOLL_OK);
  memset(AtollBufferData(scores), 0x55, 10);
  RunOnce(interpreter, got);
  EXPECT(memcmp(want, got, sizeof(got)) == 0);
  EXPECT(((unsigned char*)AtollBufferData(scores))[0] == 0x55);
  AtollBufferDelete(scores);
  AtollInterpreterDelete(interpreter);
  AtollDelegateDelete(delegate);
  AtollModelDelete(model);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s model.tflite\n", argv[0]);
    return 2;
  }
  CheckNull(argv[1]);
  CheckDelegateOptions();
  CheckIndices(argv[1]);
  CheckDeletedEarly(argv[1]);
  CheckCpu(argv[1]);
  CheckOtherVersions(argv[1]);
  CheckShapesAndBuffers(argv[1], "cpu");
  CheckShapesAndBuffers(argv[1], "emu");
  printf("%d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
