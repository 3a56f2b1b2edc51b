/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process has in memory that does nothing but run one model on the CPU, linked to
 * libatoll-core: loads it, invokes it three times on one thread, and prints what the kernel says of
 * the process. Nothing else is in it, no C++ of its own and no stdio of C++. */
#include <stdio.h>
#include <string.h>

#include "atoll/runtime.h"

static int fail(const char* what) {
  fprintf(stderr, "peak_memory: %s: %s\n", what, AtollLastError());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: peak_memory MODEL.tflite\n");
    return 2;
  }
  AtollModel* model = NULL;
  if (AtollModelCreateFromFile(argv[1], &model) != ATOLL_OK) return fail(argv[1]);
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.num_threads = 1;
  AtollInterpreter* interpreter = NULL;
  if (AtollInterpreterCreate(model, &options, &interpreter) != ATOLL_OK) return fail(argv[1]);
  for (int i = 0; i < 3; ++i) {
    if (AtollInterpreterInvoke(interpreter) != ATOLL_OK) return fail("AtollInterpreterInvoke");
  }
  FILE* const status = fopen("/proc/self/status", "r");
  char line[128];
  while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
    if (strncmp(line, "VmHWM", 5) == 0 || strncmp(line, "VmRSS", 5) == 0 ||
        strncmp(line, "RssAnon", 7) == 0) {
      fputs(line, stdout);
    }
  }
  if (status != NULL) fclose(status);
  AtollInterpreterDelete(interpreter);
  AtollModelDelete(model);
  return 0;
}
