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
  EXPECT(AtollTensorCopyFromBuffer(input, &byte, 1) == ATOLL_INVALID_ARGUMENT);
  EXPECT(strstr(AtollLastError(), "784") != NULL);
  EXPECT(AtollTensorCopyToBuffer(output, &byte, 1) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollTensorCopyToBuffer(output, NULL, 10) == ATOLL_INVALID_ARGUMENT);
  for (i = 0; i < AtollInterpreterGetTensorCount(interpreter); ++i) {
    EXPECT(AtollTensorName(AtollInterpreterGetTensor(interpreter, i)) != NULL);
  }
}

static void CountTensors(int32_t tensor_index, const AtollTensor* tensor, void* user_data) {
  EXPECT(tensor_index >= 0);
  EXPECT(AtollTensorConstData(tensor) != NULL);
  ++*(int*)user_data;
}

static void CountSteps(const AtollTraceEvent* event, void* user_data) {
  EXPECT(event->name != NULL && event->duration_ns >= 0);
  ++*(int*)user_data;
}

static void CheckInvoke(AtollInterpreter* interpreter, int has_device) {
  AtollTensor* input = AtollInterpreterGetInputTensor(interpreter, 0);
  const AtollTensor* output = AtollInterpreterGetOutputTensor(interpreter, 0);
  signed char picture[28 * 28];
  signed char first[10];
  signed char second[10];
  AtollInvokeInfo info;
  int tensors = 0;
  int steps = 0;
  int i;

  for (i = 0; i < 28 * 28; ++i) picture[i] = (signed char)(i * 37 % 256 - 128);
  EXPECT(AtollTensorCopyFromBuffer(input, picture, sizeof(picture)) == ATOLL_OK);
  EXPECT(AtollInterpreterInvoke(interpreter) == ATOLL_OK);
  EXPECT(strcmp(AtollLastError(), "") == 0);
  EXPECT(AtollTensorCopyToBuffer(output, first, sizeof(first)) == ATOLL_OK);
  EXPECT(memcmp(AtollTensorData(input), picture, sizeof(picture)) == 0);

  AtollInterpreterSetTensorTap(interpreter, CountTensors, &tensors);
  AtollInterpreterSetTraceCallback(interpreter, CountSteps, &steps);
  EXPECT(AtollInterpreterInvokeAsync(interpreter) == ATOLL_OK);
  EXPECT(AtollInterpreterWait(interpreter) == ATOLL_OK);
  EXPECT(AtollInterpreterWait(interpreter) == ATOLL_INVALID_ARGUMENT);
  AtollInterpreterSetTensorTap(interpreter, NULL, NULL);
  AtollInterpreterSetTraceCallback(interpreter, NULL, NULL);
  EXPECT(AtollTensorCopyToBuffer(output, second, sizeof(second)) == ATOLL_OK);
  EXPECT(memcmp(first, second, sizeof(first)) == 0);
  EXPECT(tensors > 0 && steps > 0);

  EXPECT(AtollInterpreterGetInvokeInfo(interpreter, &info) == ATOLL_OK);
  EXPECT((info.device_cycles > 0) == has_device);
  EXPECT((info.bytes_to_device >= 28 * 28) == has_device);
  EXPECT(AtollInterpreterGetInvokeInfo(interpreter, NULL) == ATOLL_INVALID_ARGUMENT);
}

static void CheckReports(AtollInterpreter* interpreter, int has_device) {
  AtollNodeInfo node;
  AtollPartitionInfo partition;
  AtollMemoryInfo memory;
  int64_t macs = 0;
  int32_t i;

  for (i = 0; i < AtollInterpreterGetNodeCount(interpreter); ++i) {
    EXPECT(AtollInterpreterGetNodeInfo(interpreter, i, &node) == ATOLL_OK);
    EXPECT(strlen(node.op) > 0);
    EXPECT(node.input_count > 0 && node.output_count > 0);
    EXPECT((node.partition == -1 && has_device) == (strlen(node.reason) > 0));
    macs += node.macs;
  }
  EXPECT(macs > 0);
  EXPECT(AtollInterpreterGetNodeInfo(interpreter, i, &node) == ATOLL_INVALID_ARGUMENT);
  EXPECT((AtollInterpreterGetPartitionCount(interpreter) > 0) == has_device);
  if (has_device) {
    EXPECT(AtollInterpreterGetPartitionInfo(interpreter, 0, &partition) == ATOLL_OK);
    EXPECT(partition.node_count > 0 && partition.estimated_cycles > 0);
    EXPECT(partition.note != NULL);
  }
  EXPECT(AtollInterpreterGetPartitionInfo(interpreter, 1000, &partition) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollInterpreterGetMemoryInfo(interpreter, &memory) == ATOLL_OK);
  EXPECT(memory.arena_bytes > 0 && memory.constant_bytes > 0);
}

static void CheckDevices(const AtollDelegate* delegate) {
  const AtollDeviceInfo* devices = NULL;
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
  AtollModelDelete(model); /* the interpreter keeps what it needs */
  CheckTensors(interpreter);
  CheckReports(interpreter, has_device);
  CheckInvoke(interpreter, has_device);
  AtollInterpreterDelete(interpreter);
  AtollDelegateDelete(delegate);
  return failures == 0 ? 0 : 1;
}
