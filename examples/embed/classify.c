/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: classify MODEL PICTURE.pgm [DEVICE]
 *
 * Says which class a gray picture is of, for a classifier with an int8 input of the picture's size
 * such as the bundled one:
 *
 *   classify share/atoll/fashion_int8.tflite share/atoll/ankle_boot.pgm
 */
#include <atoll/delegate.h>
#include <atoll/runtime.h>
#include <stdio.h>
#include <stdlib.h>

static void Require(AtollStatus status) {
  if (status == ATOLL_OK) return;
  fprintf(stderr, "classify: %s\n", AtollLastError());
  exit(1);
}

/* Reads a binary PGM of as many pixels as the input has values. */
static void ReadPicture(const char* path, AtollTensor* input) {
  const size_t size = AtollTensorByteSize(input);
  signed char* values = AtollTensorData(input);
  unsigned width = 0, height = 0;
  size_t i;
  FILE* file = fopen(path, "rb");

  if (file == NULL || fscanf(file, "P5 %5u %5u 255", &width, &height) != 2 ||
      (size_t)width * height != size || fgetc(file) == EOF ||
      fread(values, 1, size, file) != size) {
    fprintf(stderr, "classify: %s is no binary PGM with %u pixels of 0 to 255\n", path,
            (unsigned)size);
    exit(1);
  }
  fclose(file);
  for (i = 0; i < size; ++i) values[i] = (signed char)((unsigned char)values[i] - 128);
}

int main(int argc, char** argv) {
  AtollDelegateOptions device = ATOLL_DELEGATE_OPTIONS_INIT;
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  AtollDelegate* delegate = NULL;
  AtollModel* model = NULL;
  AtollInterpreter* interpreter = NULL;
  AtollTensor* input;
  const AtollTensor* output;
  const signed char* scores;
  AtollQuantization quantization;
  size_t i, best = 0;

  if (argc != 3 && argc != 4) {
    fprintf(stderr, "usage: %s MODEL PICTURE.pgm [DEVICE]\n", argv[0]);
    return 2;
  }
  if (argc == 4) device.device = argv[3]; /* else a broker, a real one, the emulated one */
  Require(AtollDelegateCreate(&device, &delegate));
  Require(AtollModelCreateFromFile(argv[1], &model));
  options.delegate = delegate;
  Require(AtollInterpreterCreate(model, &options, &interpreter));
  AtollModelDelete(model); /* the interpreter keeps what it needs */

  input = AtollInterpreterGetInputTensor(interpreter, 0);
  output = AtollInterpreterGetOutputTensor(interpreter, 0);
  if (input == NULL || AtollTensorType(input) != ATOLL_INT8 || output == NULL ||
      AtollTensorType(output) != ATOLL_INT8) {
    fprintf(stderr, "classify: %s has no int8 input and output\n", argv[1]);
    return 1;
  }
  ReadPicture(argv[2], input);
  Require(AtollInterpreterInvoke(interpreter));

  scores = AtollTensorConstData(output);
  for (i = 1; i < AtollTensorByteSize(output); ++i) {
    if (scores[i] > scores[best]) best = i;
  }
  quantization = AtollTensorQuantization(output);
  printf("class %u, score %.4f\n", (unsigned)best,
         quantization.scale * (scores[best] - quantization.zero_point));
  AtollInterpreterDelete(interpreter);
  AtollDelegateDelete(delegate);
  return 0;
}
