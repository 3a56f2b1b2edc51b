/* SPDX-License-Identifier: Apache-2.0
 *
 * Every function of libatoll-quantize with what it should not be given. */
#include <stdio.h>
#include <string.h>

#include "atoll/quantize.h"

#define EXPECT(condition)                                                          \
  do {                                                                             \
    if (!(condition)) {                                                            \
      printf("line %d: " #condition "; %s\n", __LINE__, AtollQuantizeLastError()); \
      failed = 1;                                                                  \
    }                                                                              \
  } while (0)

static int NoSample(void* user_data, float* const* inputs, const size_t* counts, size_t count) {
  (void)user_data, (void)inputs, (void)counts, (void)count;
  return 0;
}
static int Again(void* user_data) {
  (void)user_data;
  return 0;
}

int main(void) {
  int failed = 0;
  const char bytes[] = "no model at all, but bytes";
  AtollQuantizeSamples samples = {NoSample, Again, NULL};
  AtollQuantizeOptions options = ATOLL_QUANTIZE_OPTIONS_INIT;
  AtollQuantized* result = NULL;
  size_t size = 1;
  EXPECT(AtollQuantize(NULL, 0, &samples, NULL, &result) == ATOLL_INVALID_ARGUMENT);
  EXPECT(strstr(AtollQuantizeLastError(), "model") != NULL);
  EXPECT(AtollQuantize(bytes, sizeof(bytes), NULL, NULL, &result) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollQuantize(bytes, sizeof(bytes), &samples, NULL, NULL) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollQuantize(bytes, sizeof(bytes), &samples, &options, &result) == ATOLL_CORRUPT_MODEL);
  options.ranges = 7;
  EXPECT(AtollQuantize(bytes, sizeof(bytes), &samples, &options, &result) ==
         ATOLL_INVALID_ARGUMENT);
  EXPECT(strstr(AtollQuantizeLastError(), "ranges is 7") != NULL);
  options.ranges = ATOLL_RANGES_MIN_MAX;
  options.struct_size = 3;
  EXPECT(AtollQuantize(bytes, sizeof(bytes), &samples, &options, &result) ==
         ATOLL_INVALID_ARGUMENT);
  EXPECT(result == NULL);
  EXPECT(AtollImportOnnx(NULL, 0, NULL, 0, 0, &result) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollImportOnnx(bytes, sizeof(bytes), NULL, 1, 0, &result) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollImportOnnx(bytes, sizeof(bytes), NULL, 0, 0, NULL) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollImportOnnx(bytes, sizeof(bytes), NULL, 0, 0, &result) == ATOLL_CORRUPT_MODEL);
  EXPECT(AtollQuantizeRepair(NULL, 0, &result) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollQuantizeRepair(bytes, sizeof(bytes), NULL) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollQuantizeRepair(bytes, sizeof(bytes), &result) == ATOLL_CORRUPT_MODEL);
  EXPECT(AtollQuantizeCheck(NULL, 0) == ATOLL_INVALID_ARGUMENT);
  EXPECT(AtollQuantizeCheck(bytes, sizeof(bytes)) == ATOLL_CORRUPT_MODEL);
  EXPECT(AtollQuantizedModel(NULL, &size) == NULL && size == 0);
  EXPECT(strcmp(AtollQuantizedReport(NULL), "") == 0);
  AtollQuantizedDelete(NULL);
  return failed;
}
