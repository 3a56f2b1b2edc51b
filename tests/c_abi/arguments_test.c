/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: arguments_test model.tflite
 *
 * Every function of the C interface with NULL and with indices, names and numbers that do not
 * exist: a status, or what the header promises of functions without one, and a sentence.
 * check_calls.sh holds that no function is left out. */
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
  AtollPartitionInfo partition;
  AtollMemoryInfo memory;
  AtollInvokeInfo invoke;
  AtollDeviceInfo device;
  AtollDeviceHealth health;
  AtollExecutableInfo executable;
  AtollInstructionInfo instruction;
  AtollCoralEstimate estimate;
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
  EXPECT(model == NULL);

  EXPECT_INVALID(AtollInterpreterCreate(NULL, NULL, &interpreter));
  AtollInterpreterDelete(NULL);
  EXPECT_INVALID(AtollInterpreterInvoke(NULL));
  EXPECT_INVALID(AtollInterpreterInvokeAsync(NULL));
  EXPECT_INVALID(AtollInterpreterWait(NULL));
  EXPECT_INVALID(AtollInterpreterCancel(NULL));
  EXPECT_INVALID(AtollInterpreterResetVariableTensors(NULL));
  EXPECT_SAYS(AtollInterpreterGetInputTensorCount(NULL) == 0);
  EXPECT_SAYS(AtollInterpreterGetOutputTensorCount(NULL) == 0);
  EXPECT_SAYS(AtollInterpreterGetInputTensor(NULL, 0) == NULL);
  EXPECT_SAYS(AtollInterpreterGetOutputTensor(NULL, 0) == NULL);
  EXPECT_SAYS(AtollInterpreterGetNodeCount(NULL) == 0);
  EXPECT_INVALID(AtollInterpreterGetNodeInfo(NULL, 0, &node));
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
  EXPECT_SAYS(AtollTensorByteSize(NULL) == 0);
  EXPECT_SAYS(AtollTensorData(NULL) == NULL);
  EXPECT_SAYS(AtollTensorConstData(NULL) == NULL);
  EXPECT_SAYS(AtollTensorQuantization(NULL).scale == 0);
  EXPECT_SAYS(AtollTensorIsConstant(NULL) == 0);
  EXPECT_INVALID(AtollTensorCopyFromBuffer(NULL, &byte, 1));
  EXPECT_INVALID(AtollTensorCopyToBuffer(NULL, &byte, 1));

  EXPECT_INVALID(AtollDelegateCreate(NULL, NULL));
  AtollDelegateDelete(NULL);
  EXPECT_INVALID(AtollDelegateGetDeviceInfo(NULL, &device));
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
  static const char* const kNoDevices[] = {"",      "toaster", "CPU",         "usb:",
                                           "usb:x", "emu:",    "emu,",        ",",
                                           "pci",   "coral",   "/dev/apex_0", "cpu,emu"};
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
  AtollPartitionInfo partition;
  AtollExecutableInfo executable;
  AtollInstructionInfo instruction;
  AtollCoralEstimate estimate;
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
    EXPECT_INVALID(AtollInterpreterGetNodeInfo(interpreter, kIndices[i], &node));
    EXPECT_INVALID(AtollInterpreterGetPartitionInfo(interpreter, kIndices[i], &partition));
    EXPECT_INVALID(AtollInterpreterGetPartitionMemory(interpreter, kIndices[i], &blocks, &count));
  }
  EXPECT_INVALID(AtollInterpreterGetNodeInfo(interpreter, 0, NULL));
  EXPECT_INVALID(AtollInterpreterGetPartitionInfo(interpreter, 0, NULL));
  EXPECT_INVALID(AtollInterpreterGetPartitionMemory(interpreter, 0, NULL, &count));
  EXPECT_INVALID(AtollInterpreterGetPartitionMemory(interpreter, 0, &blocks, NULL));
  EXPECT_INVALID(AtollInterpreterGetMemoryInfo(interpreter, NULL));
  EXPECT_INVALID(AtollInterpreterGetInvokeInfo(interpreter, NULL));
  EXPECT_INVALID(AtollInterpreterWait(interpreter));
  EXPECT(AtollInterpreterCancel(interpreter) == ATOLL_OK); /* nothing */
  EXPECT_INVALID(AtollTensorCopyFromBuffer(input, NULL, 784));
  EXPECT_INVALID(AtollTensorCopyToBuffer(input, NULL, 784));
  EXPECT_INVALID(AtollTensorCopyFromBuffer(input, bytes, 783));
  EXPECT_INVALID(AtollTensorCopyToBuffer(input, bytes, 0));
  EXPECT_INVALID(AtollTensorCopyToBuffer(input, bytes, (size_t)-1));

  EXPECT_INVALID(AtollDelegateGetDeviceInfo(delegate, NULL));
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
  AtollDeviceHealth health;
  signed char scores[10];
  int32_t count = 0;

  delegate_options.device = "cpu";
  REQUIRE(AtollDelegateCreate(&delegate_options, &cpu) == ATOLL_OK);
  REQUIRE(AtollDelegateGetDeviceInfo(cpu, &info) == ATOLL_OK);
  EXPECT(strcmp(info.name, "cpu") == 0 && strstr(info.description, "kernels") != NULL);
  EXPECT(info.array_rows == 0 && info.available != 0 && strcmp(info.note, "") == 0);
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

/* A program built when AtollModelOptions ended before `copy_file`. */
static void CheckOlderOptions(const char* path) {
  AtollModel* model = NULL;
  AtollModelOptions options = ATOLL_MODEL_OPTIONS_INIT;
  options.struct_size = offsetof(AtollModelOptions, copy_file);
  options.copy_file = (size_t)-1; /* is not looked at */
  EXPECT(AtollModelCreateFromFileWithOptions(path, &options, &model) == ATOLL_OK);
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
  CheckOlderOptions(argv[1]);
  printf("%d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
