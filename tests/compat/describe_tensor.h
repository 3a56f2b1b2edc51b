/* SPDX-License-Identifier: Apache-2.0
 *
 * A tensor of a TensorFlow Lite runtime as a line of JSON: what it says of itself, without its
 * bytes. */
#ifndef ATOLL_TESTS_COMPAT_DESCRIBE_TENSOR_H_
#define ATOLL_TESTS_COMPAT_DESCRIBE_TENSOR_H_

#include <stdio.h>

#include "compat/tflite/abi.h"

static void DescribeInts(FILE* file, const char* key, const TfLiteIntArray* array) {
  fprintf(file, ", \"%s\": [", key);
  for (int i = 0; array != NULL && i < array->size; ++i) {
    fprintf(file, i == 0 ? "%d" : ", %d", array->data[i]);
  }
  fputc(']', file);
}

static void DescribeTensor(FILE* file, int index, const TfLiteTensor* tensor) {
  fprintf(file, "{\"index\": %d, \"name\": \"", index);
  for (const char* c = tensor->name != NULL ? tensor->name : ""; *c != '\0'; ++c) {
    if (*c == '"' || *c == '\\') fputc('\\', file);
    fputc(*c, file);
  }
  fprintf(file, "\", \"type\": %d, \"bytes\": %zu, \"constant\": %d, \"variable\": %d",
          tensor->type, tensor->bytes, tensor->allocation_type == kTfLiteMmapRo,
          tensor->is_variable);
  fprintf(file, ", \"scale\": %.9g, \"zero_point\": %d", (double)tensor->params.scale,
          tensor->params.zero_point);
  DescribeInts(file, "shape", tensor->dims);
  DescribeInts(file, "shape_signature", tensor->dims_signature);
  const TfLiteAffineQuantization* const affine =
      tensor->quantization.type == kTfLiteAffineQuantization ? tensor->quantization.params : NULL;
  fputs(", \"scales\": [", file);
  for (int i = 0; affine != NULL && i < affine->scale->size; ++i) {
    fprintf(file, i == 0 ? "%.9g" : ", %.9g", (double)affine->scale->data[i]);
  }
  fputc(']', file);
  DescribeInts(file, "zero_points", affine != NULL ? affine->zero_point : NULL);
  fprintf(file, ", \"quantized_dimension\": %d}\n",
          affine != NULL ? affine->quantized_dimension : 0);
}

#endif /* ATOLL_TESTS_COMPAT_DESCRIBE_TENSOR_H_ */
