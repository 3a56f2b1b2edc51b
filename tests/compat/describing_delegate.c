/* SPDX-License-Identifier: Apache-2.0
 *
 * A delegate that takes no operator. Its option `output` names a file, where it writes what the
 * runtime says of its tensors (describe_tensor.h). With `flags` 0 it is asked after the operators
 * were prepared, with 1 before. */
#include <stdlib.h>
#include <string.h>

#include "tests/compat/describe_tensor.h"

static TfLiteStatus Prepare(TfLiteContext* context, TfLiteDelegate* delegate) {
  FILE* const file = fopen(delegate->data_, "wx"); /* not again for other subgraphs */
  if (file == NULL) return kTfLiteOk;
  for (size_t i = 0; i < context->tensors_size; ++i) {
    DescribeTensor(file, (int)i, &context->tensors[i]);
  }
  return fclose(file) == 0 ? kTfLiteOk : kTfLiteError;
}

__attribute__((visibility("default"))) TfLiteDelegate* tflite_plugin_create_delegate(
    char** keys, char** values, size_t count, void (*report)(const char* message)) {
  (void)report;
  TfLiteDelegate* const delegate = calloc(2, sizeof(TfLiteDelegate)); /* for longer ones, too */
  delegate->Prepare = Prepare;
  for (size_t i = 0; i < count; ++i) {
    if (strcmp(keys[i], "output") == 0) delegate->data_ = strdup(values[i]);
    if (strcmp(keys[i], "flags") == 0) delegate->flags = atoi(values[i]);
  }
  return delegate;
}

__attribute__((visibility("default"))) void tflite_plugin_destroy_delegate(
    TfLiteDelegate* delegate) {
  free(delegate->data_);
  free(delegate);
}
