/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: invoke_test model.tflite cpu|DEVICE
 *
 * Runs the Fashion-MNIST classifier through the C interface and checks what the headers promise of
 * arguments, tensors, reports and messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/delegate.h"
#include "atoll/runtime.h"

static int failures = 0;

#define EXPECT(condition)                                                                     \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "%s:%d: %s is false; last error: %s\n", __FILE__, __LINE__, #condition, \
              AtollLastError());                                                              \
      ++failures;                                                                             \
    }                                                                                         \
  } while (0)

/* Stops the program: what follows would make no sense. */
#define REQUIRE(condition) \
  do {                     \
    EXPECT(condition);     \
    if (failures) exit(1); \
  } while (0)

static void CheckArguments(const char* path) {
  AtollModel* model = NULL;
  AtollInterpreter* interpreter = NULL;
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  AtollDelegateOptions delegate_options = ATOLL_DELEGATE_OPTIONS_INIT;
  AtollDelegate* delegate = NULL;

  EXPECT(AtollModelCreateFromFile(NULL, &model) == ATOLL_INVALID_ARGUMENT);
  EXPECT(strcmp(AtollLastError(), "argument 'path' is NULL") == 0);
  EXPECT(AtollModelCreateFromFile(path, NULL) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollModelCreateFromFile("/no/such/file", &model) == ATOLL_NOT_FOUND);
  EXPECT(strstr(AtollLastError(), "/no/such/file") != NULL);
  EXPECT(AtollModelCreateFromBuffer("TFL3", 4, &model) == ATOLL_CORRUPT_MODEL);
  EXPECT(AtollModelCreateFromBuffer("", 0, &model) == ATOLL_CORRUPT_MODEL);
  EXPECT(model == NULL);
  AtollModelDelete(NULL);
  AtollInterpreterDelete(NULL);
  AtollDelegateDelete(NULL);

  REQUIRE(AtollModelCreateFromFile(path, &model) == ATOLL_OK);
  EXPECT(AtollModelHasOperator(model, "CONV_2D") != 0);
  EXPECT(AtollModelHasOperator(model, "edgetpu-custom-op") == 0);
  EXPECT(AtollModelHasOperator(model, "CUSTOM") == 0);
  EXPECT(AtollInterpreterCreate(NULL, NULL, &interpreter) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollInterpreterCreate(model, NULL, NULL) == ATOLL_INVALID_ARGUMENT);
  options.struct_size = 3;
  EXPECT(AtollInterpreterCreate(model, &options, &interpreter) == ATOLL_INVALID_ARGUMENT);
  EXPECT(strstr(AtollLastError(), "ATOLL_INTERPRETER_OPTIONS_INIT") != NULL);
  EXPECT(interpreter == NULL);
  delegate_options.struct_size = 3;
  EXPECT(AtollDelegateCreate(&delegate_options, &delegate) == ATOLL_INVALID_ARGUMENT);
  delegate_options.struct_size = sizeof(delegate_options);
  delegate_options.device = "toaster";
  EXPECT(AtollDelegateCreate(&delegate_options, &delegate) == ATOLL_INVALID_ARGUMENT);
  EXPECT(strstr(AtollLastError(), "toaster") != NULL);
  EXPECT(delegate == NULL);
  EXPECT(AtollInterpreterInvoke(NULL) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollInterpreterWait(NULL) == ATOLL_INVALID_ARGUMENT);
  AtollModelDelete(model);
}

static void CheckInputShapes(const char* path) {
  const int32_t wide[] = {40, 44};
  const int32_t colour[] = {1, 28, 28, 3};
  const int32_t flat[] = {784};
  AtollInputShape shape = {NULL, -1, wide, 2};
  AtollModelOptions options = ATOLL_MODEL_OPTIONS_INIT;
  AtollModel* model = NULL;
  AtollInterpreter* interpreter = NULL;

  /* As in the file. */
  REQUIRE(AtollModelCreateFromFileWithOptions(path, &options, &model) == ATOLL_OK);
  AtollModelDelete(model);
  options.input_shapes = &shape;
  options.input_shape_count = 1;
  REQUIRE(AtollModelCreateFromFileWithOptions(path, &options, &model) == ATOLL_OK);
  REQUIRE(AtollInterpreterCreate(model, NULL, &interpreter) == ATOLL_OK);
  EXPECT(AtollTensorByteSize(AtollInterpreterGetInputTensor(interpreter, 0)) == 40 * 44);
  EXPECT(AtollTensorByteSize(AtollInterpreterGetOutputTensor(interpreter, 0)) == 10);
  AtollInterpreterDelete(interpreter);
  AtollModelDelete(model);
  model = NULL;

  /* The filters have one channel. */
  shape.dims = colour;
  shape.num_dims = 4;
  EXPECT(AtollModelCreateFromFileWithOptions(path, &options, &model) == ATOLL_CORRUPT_MODEL);
  EXPECT(strstr(AtollLastError(), "[1, 28, 28, 3]") != NULL);
  shape.name = "nonesuch";
  EXPECT(AtollModelCreateFromFileWithOptions(path, &options, &model) == ATOLL_INVALID_ARGUMENT);
  EXPECT(strstr(AtollLastError(), "nonesuch") != NULL);
  shape.name = NULL;
  shape.index = 1;
  EXPECT(AtollModelCreateFromFileWithOptions(path, &options, &model) == ATOLL_INVALID_ARGUMENT);
  shape.index = 0;
  shape.dims = flat;
  shape.num_dims = 1;
  EXPECT(AtollModelCreateFromFileWithOptions(path, &options, &model) == ATOLL_INVALID_ARGUMENT);
  shape.dims = NULL;
  EXPECT(AtollModelCreateFromFileWithOptions(path, &options, &model) == ATOLL_INVALID_ARGUMENT);
  shape.num_dims = -1;
  EXPECT(AtollModelCreateFromFileWithOptions(path, &options, &model) == ATOLL_INVALID_ARGUMENT);
  options.input_shapes = NULL;
  EXPECT(AtollModelCreateFromFileWithOptions(path, &options, &model) == ATOLL_INVALID_ARGUMENT);
  options.input_shape_count = -1;
  EXPECT(AtollModelCreateFromFileWithOptions(path, &options, &model) == ATOLL_INVALID_ARGUMENT);
  options.struct_size = 3;
  EXPECT(AtollModelCreateFromBufferWithOptions("TFL3", 4, &options, &model) ==
         ATOLL_INVALID_ARGUMENT);
  EXPECT(strstr(AtollLastError(), "ATOLL_MODEL_OPTIONS_INIT") != NULL);
  EXPECT(AtollModelCreateFromBufferWithOptions("TFL3", 4, NULL, &model) == ATOLL_CORRUPT_MODEL);
  EXPECT(model == NULL);
}

/* The same model several times on one device. */
static void CheckResidency(const AtollDelegate* delegate, const AtollInterpreter* interpreter) {
  const AtollInterpreter* interpreters[13];
  const AtollResidencyPlan* plan = NULL;
  AtollPartitionInfo partition;
  int32_t i;

  for (i = 0; i < 13; ++i) interpreters[i] = interpreter;
  EXPECT(AtollPlanResidency(NULL, interpreters, 1, &plan) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollPlanResidency(delegate, NULL, 1, &plan) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollPlanResidency(delegate, interpreters, 1, NULL) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollPlanResidency(delegate, interpreters, 0, &plan) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollPlanResidency(delegate, interpreters, -1, &plan) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollPlanResidency(delegate, interpreters, 13, &plan) == ATOLL_INVALID_ARGUMENT);
  EXPECT(strstr(AtollLastError(), "1 to 12") != NULL);
  EXPECT(plan == NULL);
  REQUIRE(AtollPlanResidency(delegate, interpreters, 2, &plan) == ATOLL_OK);
  EXPECT(plan->model_count == 2 && plan->turn_count == 2 * plan->round_count);
  EXPECT(plan->memory_bytes == 8 << 20 && plan->program_memory_bytes == 1 << 20);
  EXPECT(plan->all_fit != 0 && plan->repeating_round == 1);
  EXPECT(plan->needed_memory_bytes > 0 && plan->needed_memory_bytes <= plan->memory_bytes);
  EXPECT(plan->round_seconds == plan->resident_round_seconds);
  EXPECT(AtollInterpreterGetPartitionInfo(interpreter, 0, &partition) == ATOLL_OK);
  EXPECT(partition.upload_bytes > partition.program_bytes + partition.resident_parameter_bytes);
  EXPECT(partition.upload_seconds > 0);
  for (i = 0; i < 2; ++i) {
    EXPECT(plan->models[i].upload_bytes >= partition.upload_bytes);
    EXPECT(plan->models[i].parameter_bytes >= partition.resident_parameter_bytes);
    EXPECT(plan->models[i].in_subset != 0);
    EXPECT(plan->turns[i].round == 0 && plan->turns[i].model == i);
    EXPECT(plan->turns[i].upload_bytes == plan->models[i].upload_bytes);
    EXPECT(plan->turns[i].evicted_count == 0);
    EXPECT(plan->turns[2 + i].upload_bytes == 0);
  }
}

static void CheckCoral(const char* path) {
  AtollModel* model = NULL;
  AtollCoralEstimate fast;
  AtollCoralEstimate slow;

  REQUIRE(AtollModelCreateFromFile(path, &model) == ATOLL_OK);
  EXPECT(AtollEstimateCoral(NULL, "usb3", &fast) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollEstimateCoral(model, "usb3", NULL) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollEstimateCoral(model, "usb9", &fast) == ATOLL_NOT_FOUND);
  EXPECT(strstr(AtollLastError(), "usb9") != NULL);
  REQUIRE(AtollEstimateCoral(model, NULL, &fast) == ATOLL_OK);
  REQUIRE(AtollEstimateCoral(model, "usb2", &slow) == ATOLL_OK);
  EXPECT(fast.seconds > 0 && fast.seconds < slow.seconds);
  EXPECT(fast.dense_seconds == slow.dense_seconds);
  EXPECT(fast.device_node_count > 0 && fast.input_bytes == 28 * 28);
  AtollModelDelete(model);
}

/* Appends to a string of 64 KiB. */
static void Append(const void* data, size_t size, void* user_data) {
  char* text = user_data;
  const size_t length = strlen(text);
  REQUIRE(length + size < 65536);
  memcpy(text + length, data, size);
  text[length + size] = '\0';
}

static size_t assembled_bytes = 0;
static void CountBytes(const void* data, size_t size, void* user_data) {
  EXPECT(data != NULL && user_data == NULL);
  assembled_bytes = size;
}

static void CheckExecutables(const AtollDelegate* delegate, const AtollModel* model) {
  static char text[65536];
  static const char kProgram[] =
      ".executable \"echo\"\n.activations 1\n.input \"x\" int8 [1]\n.output \"y\" int8 [1]\n"
      ".inference\nINPUT bytes=1\nOUTPUT bytes=1\nEND\n";
  AtollExecutables* executables = NULL;
  AtollExecutableInfo info;
  AtollInstructionInfo instruction;
  int32_t last;

  EXPECT(AtollExecutablesCreate(NULL, 0, &executables) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollExecutablesCreate("none", 4, &executables) == ATOLL_CORRUPT_MODEL);
  EXPECT(AtollExecutablesCreateForDevice(NULL, model, &executables) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollExecutablesCreateForDevice(delegate, NULL, &executables) == ATOLL_INVALID_ARGUMENT);
  EXPECT(executables == NULL && AtollExecutablesGetCount(NULL) == 0);
  AtollExecutablesDelete(NULL);
  REQUIRE(AtollExecutablesCreateForDevice(delegate, model, &executables) == ATOLL_OK);
  REQUIRE(AtollExecutablesGetCount(executables) == 1);
  EXPECT(AtollExecutablesGetInfo(executables, 1, &info) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollExecutablesGetInfo(executables, 0, NULL) == ATOLL_INVALID_ARGUMENT);
  REQUIRE(AtollExecutablesGetInfo(executables, 0, &info) == ATOLL_OK);
  EXPECT(info.isa_version == 1 && info.array_rows > 0 && info.estimated_cycles > 0);
  EXPECT(info.input_bytes == 28 * 28 && info.output_bytes == 10);
  last = info.inference_instruction_count - 1;
  EXPECT(AtollExecutablesGetInstruction(executables, 0, ATOLL_INFERENCE_PROGRAM, last + 1,
                                        &instruction) == ATOLL_INVALID_ARGUMENT);
  REQUIRE(AtollExecutablesGetInstruction(executables, 0, ATOLL_INFERENCE_PROGRAM, last,
                                         &instruction) == ATOLL_OK);
  EXPECT(strcmp(instruction.text, "END") == 0 && strcmp(instruction.unit, "sequencer") == 0);
  EXPECT(instruction.node == -1 && instruction.node_name[0] == '\0');
  REQUIRE(AtollExecutablesGetInstruction(executables, 0, ATOLL_INFERENCE_PROGRAM, 1,
                                         &instruction) == ATOLL_OK);
  EXPECT(instruction.node == 0 && instruction.cycles > 0);
  EXPECT(AtollExecutablesDisassemble(executables, 0, ATOLL_OMIT_PARAMETERS, NULL, NULL) ==
         ATOLL_INVALID_ARGUMENT);
  REQUIRE(AtollExecutablesDisassemble(executables, 0, ATOLL_OMIT_PARAMETERS, Append, text) ==
          ATOLL_OK);
  EXPECT(strstr(text, "\n  END\n") != NULL);
  /* Parameters are not in the text. */
  EXPECT(AtollAssemble(text, strlen(text), CountBytes, NULL) == ATOLL_CORRUPT_MODEL);
  EXPECT(AtollAssemble(kProgram, strlen(kProgram), CountBytes, NULL) == ATOLL_OK);
  EXPECT(assembled_bytes > 3 * 128);
  AtollExecutablesDelete(executables);
}

static void CheckNames(void) {
  const char* cpu = NULL;
  EXPECT(strlen(AtollVersion()) > 0);
  EXPECT(strcmp(AtollStatusName(ATOLL_NOT_FOUND), "not found") == 0);
  EXPECT(strcmp(AtollTypeName(ATOLL_INT8), "int8") == 0);
  EXPECT(AtollCpuName(&cpu) == ATOLL_OK && cpu != NULL);
  EXPECT(AtollCpuName(NULL) == ATOLL_INVALID_ARGUMENT);
}

static void CheckTensors(AtollInterpreter* interpreter) {
  AtollTensor* input = AtollInterpreterGetInputTensor(interpreter, 0);
  const AtollTensor* output = AtollInterpreterGetOutputTensor(interpreter, 0);
  char byte = 0;
  int32_t i;

  EXPECT(AtollInterpreterGetInputTensorCount(interpreter) == 1);
  EXPECT(AtollInterpreterGetOutputTensorCount(interpreter) == 1);
  EXPECT(AtollInterpreterGetInputTensor(interpreter, 1) == NULL);
  EXPECT(AtollInterpreterGetInputTensor(interpreter, -1) == NULL);
  EXPECT(AtollInterpreterGetOutputTensor(interpreter, 1) == NULL);
  EXPECT(AtollInterpreterGetTensor(interpreter, -1) == NULL);
  EXPECT(AtollInterpreterGetTensor(interpreter, AtollInterpreterGetTensorCount(interpreter)) ==
         NULL);

  EXPECT(AtollTensorType(input) == ATOLL_INT8);
  EXPECT(AtollTensorNumDims(input) == 4);
  EXPECT(AtollTensorDim(input, 1) == 28);
  EXPECT(AtollTensorDim(input, 4) == -1);
  EXPECT(AtollTensorDim(input, -1) == -1);
  EXPECT(AtollTensorByteSize(input) == 28 * 28);
  EXPECT(AtollTensorQuantization(input).scale > 0);
  EXPECT(AtollTensorByteSize(output) == 10);
  EXPECT(AtollTensorIsConstant(input) == 0);
  EXPECT(AtollTensorIsVariable(input) == 0);
  EXPECT(AtollTensorCopyFromBuffer(input, &byte, 1) == ATOLL_INVALID_ARGUMENT);
  EXPECT(strstr(AtollLastError(), "784") != NULL);
  EXPECT(AtollTensorCopyToBuffer(output, &byte, 1) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollTensorCopyToBuffer(output, NULL, 10) == ATOLL_INVALID_ARGUMENT);
  for (i = 0; i < AtollInterpreterGetTensorCount(interpreter); ++i) {
    EXPECT(AtollTensorName(AtollInterpreterGetTensor(interpreter, i)) != NULL);
  }
}

static void CountTensors(int32_t tensor_index, AtollTensor* tensor, void* user_data) {
  EXPECT(tensor_index >= 0);
  EXPECT(AtollTensorConstData(tensor) != NULL);
  ++*(int*)user_data;
}

typedef struct Traced {
  int host_events;
  int device_events;
  int64_t device_cycles;
} Traced;

static void TraceBoth(const AtollTraceEvent* event, void* user_data) {
  Traced* traced = (Traced*)user_data;
  EXPECT(event->name != NULL);
  if (event->kind == ATOLL_TRACE_DEVICE) {
    EXPECT(event->host.start_ns == 0 && event->host.duration_ns == 0);
    EXPECT(event->device.start_cycle <= event->device.end_cycle);
    EXPECT(strcmp(AtollDeviceUnitName(event->device.unit), "unknown") != 0);
    if (traced->device_cycles < event->device.end_cycle) {
      traced->device_cycles = event->device.end_cycle;
    }
    ++traced->device_events;
  } else {
    EXPECT(event->host.start_ns > 0 && event->host.duration_ns >= 0);
    EXPECT(event->device.end_cycle == 0);
    ++traced->host_events;
  }
}

static void CheckInvoke(AtollInterpreter* interpreter, int has_device) {
  AtollTensor* input = AtollInterpreterGetInputTensor(interpreter, 0);
  const AtollTensor* output = AtollInterpreterGetOutputTensor(interpreter, 0);
  signed char picture[28 * 28];
  signed char first[10];
  signed char second[10];
  AtollInvokeInfo info;
  int tensors = 0;
  Traced traced = {0, 0, 0};
  int i;

  for (i = 0; i < 28 * 28; ++i) picture[i] = (signed char)(i * 37 % 256 - 128);
  EXPECT(AtollTensorCopyFromBuffer(input, picture, sizeof(picture)) == ATOLL_OK);
  EXPECT(AtollInterpreterInvoke(interpreter) == ATOLL_OK);
  EXPECT(strcmp(AtollLastError(), "") == 0);
  EXPECT(AtollTensorCopyToBuffer(output, first, sizeof(first)) == ATOLL_OK);
  EXPECT(memcmp(AtollTensorData(input), picture, sizeof(picture)) == 0);

  AtollInterpreterSetTensorTap(interpreter, CountTensors, &tensors);
  AtollInterpreterSetTrace(interpreter, TraceBoth, &traced);
  EXPECT(AtollInterpreterInvokeAsync(interpreter) == ATOLL_OK);
  EXPECT(AtollInterpreterWait(interpreter) == ATOLL_OK);
  EXPECT(AtollInterpreterWait(interpreter) == ATOLL_INVALID_ARGUMENT);
  AtollInterpreterSetTensorTap(interpreter, NULL, NULL);
  AtollInterpreterSetTrace(interpreter, NULL, NULL);
  EXPECT(AtollTensorCopyToBuffer(output, second, sizeof(second)) == ATOLL_OK);
  EXPECT(memcmp(first, second, sizeof(first)) == 0);
  EXPECT(tensors > 0 && traced.host_events > 0);
  EXPECT((traced.device_events > 0) == has_device);

  EXPECT(AtollInterpreterGetInvokeInfo(interpreter, &info) == ATOLL_OK);
  EXPECT(info.device_cycles == traced.device_cycles);
  EXPECT((info.device_cycles > 0) == has_device);
  EXPECT((info.bytes_to_device >= 28 * 28) == has_device);
  EXPECT(AtollInterpreterGetInvokeInfo(interpreter, NULL) == ATOLL_INVALID_ARGUMENT);
}

static void CheckReports(AtollInterpreter* interpreter, int has_device) {
  AtollNodeInfo node;
  AtollNodeKernel kernel;
  int32_t kernels = 0;
  AtollPartitionInfo partition;
  AtollMemoryInfo memory;
  const AtollMemoryBlock* blocks = NULL;
  int32_t count = 0;
  int64_t macs = 0;
  int32_t i;

  for (i = 0; i < AtollInterpreterGetNodeCount(interpreter); ++i) {
    EXPECT(AtollInterpreterGetNodeInfo(interpreter, i, &node) == ATOLL_OK);
    EXPECT(strlen(node.op) > 0);
    EXPECT(node.input_count > 0 && node.output_count > 0);
    EXPECT((node.partition == -1 && has_device) == (strlen(node.reason) > 0));
    macs += node.macs;
    EXPECT(AtollInterpreterGetNodeKernel(interpreter, i, &kernel) == ATOLL_OK);
    EXPECT((kernel.channels > 0) == (strlen(kernel.name) > 0));
    EXPECT(kernel.float_channels >= 0 && kernel.float_channels <= kernel.channels);
    EXPECT(kernel.packed_in_file == 0);
    if (kernel.channels > 0) {
      ++kernels;
      EXPECT(node.partition == -1 && node.macs > 0);
    }
  }
  EXPECT(AtollInterpreterGetNodeKernel(interpreter, i, &kernel) == ATOLL_INVALID_ARGUMENT);
  EXPECT((kernels > 0) == !has_device);
  EXPECT(macs > 0);
  EXPECT(AtollInterpreterGetNodeInfo(interpreter, i, &node) == ATOLL_INVALID_ARGUMENT);
  EXPECT((AtollInterpreterGetPartitionCount(interpreter) > 0) == has_device);
  if (has_device) {
    EXPECT(AtollInterpreterGetPartitionInfo(interpreter, 0, &partition) == ATOLL_OK);
    EXPECT(partition.node_count > 0 && partition.estimated_cycles > 0);
    EXPECT(partition.note != NULL);
    EXPECT(AtollInterpreterGetPartitionMemory(interpreter, 0, &blocks, &count) == ATOLL_OK);
    EXPECT(count > 0);
    for (i = 0; i < count; ++i) {
      EXPECT(blocks[i].offset >= 0 && blocks[i].bytes > 0);
      EXPECT(blocks[i].first_instruction <= blocks[i].last_instruction);
      EXPECT(blocks[i].last_instruction < partition.instruction_count);
    }
  }
  EXPECT(AtollInterpreterGetPartitionMemory(interpreter, -1, &blocks, &count) ==
         ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollInterpreterGetPartitionInfo(interpreter, 1000, &partition) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollInterpreterGetMemoryInfo(interpreter, &memory) == ATOLL_OK);
  EXPECT(memory.arena_bytes > 0 && memory.constant_bytes > 0);
  EXPECT(memory.arena_lower_bound_bytes > 0 &&
         memory.arena_lower_bound_bytes <= memory.arena_bytes);
}

static void CheckDevices(const AtollDelegate* delegate) {
  const AtollDeviceInfo* devices = NULL;
  const AtollActivity* activities = NULL;
  AtollDeviceInfo info;
  int32_t count = 0;
  int32_t defaults = 0;
  int32_t i;

  EXPECT(AtollListDevices(&devices, &count) == ATOLL_OK);
  EXPECT(count > 0);
  for (i = 0; i < count; ++i) defaults += devices[i].is_default != 0;
  EXPECT(defaults == 1);
  EXPECT(AtollListDevices(NULL, &count) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollDelegateGetDeviceInfo(delegate, &info) == ATOLL_OK);
  EXPECT(strcmp(info.name, "emu") == 0);
  EXPECT(strlen(info.description) > 0);
  EXPECT(info.array_rows == 64 && info.array_columns == 64 && info.clock_hz == 500000000);
  EXPECT(info.memory_bytes == 8 << 20 && info.link_bytes_per_second > 0);
  EXPECT(AtollListActivity(&activities, &count) == ATOLL_OK); /* as the test's environment says */
  for (i = 0; i < count; ++i) EXPECT(strlen(activities[i].device) > 0);
  EXPECT(AtollListActivity(NULL, &count) == ATOLL_INVALID_ARGUMENT);
}

int main(int argc, char** argv) {
  AtollModel* model = NULL;
  AtollInterpreter* interpreter = NULL;
  AtollDelegate* delegate = NULL;
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  int has_device;

  if (argc != 3) {
    fprintf(stderr, "usage: %s model.tflite cpu|DEVICE\n", argv[0]);
    return 2;
  }
  CheckArguments(argv[1]);
  CheckNames();
  CheckInputShapes(argv[1]);
  CheckCoral(argv[1]);

  has_device = strcmp(argv[2], "cpu") != 0;
  if (has_device) {
    AtollDelegateOptions delegate_options = ATOLL_DELEGATE_OPTIONS_INIT;
    delegate_options.device = argv[2];
    REQUIRE(AtollDelegateCreate(&delegate_options, &delegate) == ATOLL_OK);
    CheckDevices(delegate);
  }
  options.delegate = delegate;
  options.num_threads = 1;
  REQUIRE(AtollModelCreateFromFile(argv[1], &model) == ATOLL_OK);
  REQUIRE(AtollInterpreterCreate(model, &options, &interpreter) == ATOLL_OK);
  if (has_device) CheckExecutables(delegate, model);
  AtollModelDelete(model); /* the interpreter keeps what it needs */
  CheckTensors(interpreter);
  CheckReports(interpreter, has_device);
  if (has_device) CheckResidency(delegate, interpreter);
  CheckInvoke(interpreter, has_device);
  AtollInterpreterDelete(interpreter);
  AtollDelegateDelete(delegate);
  return failures == 0 ? 0 : 1;
}
