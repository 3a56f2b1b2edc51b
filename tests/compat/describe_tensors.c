/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: describe_tensors MODEL
 *
 * Prints what the tensors of our libtensorflowlite_c say of themselves (describe_tensor.h), before
 * they are allocated. */
#include <stdlib.h>

#include "compat/tensorflowlite_c/c_api.h"
#include "tests/compat/describe_tensor.h"

int main(int argc, char** argv) {
  TfLiteModel* const model = argc > 1 ? TfLiteModelCreateFromFile(argv[1]) : NULL;
  TfLiteInterpreter* const interpreter = TfLiteInterpreterCreate(model, NULL);
  if (interpreter == NULL) return 1;
  TfLiteTensor* tensor = NULL;
  for (int i = 0; (tensor = TfLiteInterpreterGetTensor(interpreter, i)) != NULL; ++i) {
    DescribeTensor(stdout, i, tensor);
  }
  TfLiteInterpreterDelete(interpreter);
  TfLiteModelDelete(model);
  return 0;
}
