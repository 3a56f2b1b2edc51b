/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: run_model MODEL SEED [--repeat N] [--interpreters N] [--resize SIZE,SIZE,...] [--times N]
 *                             [--threads N] [--xnnpack] [--delegate LIBRARY [KEY=VALUE ...]]
 *
 * A program as others write it against TensorFlow Lite's C interface: fills the inputs from SEED as
 * the reference data says, runs the model, and writes the bytes of all outputs, one after the
 * other, to stdout; those of each run, with --repeat. --interpreters: so many live at once, and
 * take turns in each run. --resize, which may be repeated: after the runs, the first input gets
 * this shape, and so many runs follow. With --times N it writes nothing to stdout, but to stderr
 * how many microseconds the shortest of N runs took. It is linked to a libtensorflowlite_c; which
 * one it gets is LD_LIBRARY_PATH's to say. Exit code 1, with what was reported on stderr, if
 * something fails. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compat/tensorflowlite_c/c_api.h"

enum { kMostDimensions = 8, kMostShapes = 4, kMostInterpreters = 4 };

static void Report(void* user_data, const char* format, va_list args) {
  (void)user_data;
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
}

static uint64_t Next(uint64_t* state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static void Fill(TfLiteType type, uint8_t* bytes, size_t size, uint64_t seed) {
  uint64_t state = seed;
  if (type == kTfLiteFloat32) {
    for (size_t i = 0; i + sizeof(float) <= size; i += sizeof(float)) {
      const float value = (float)((double)(Next(&state) >> 40) / (1 << 24) * 2 - 1);
      memcpy(bytes + i, &value, sizeof(value));
    }
    return;
  }
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t value = Next(&state);
    memcpy(bytes + i, &value, size - i < 8 ? size - i : 8);
  }
}

static int Fail(const char* what) {
  fprintf(stderr, "run_model: %s failed\n", what);
  return 1;
}

static double Now(void) { /* in microseconds */
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void Time(TfLiteInterpreter* interpreter, int times) {
  double shortest = 1e30;
  for (int i = 0; i < times; ++i) {
    const double before = Now();
    if (TfLiteInterpreterInvoke(interpreter) != kTfLiteOk) return;
    const double taken = Now() - before;
    if (taken < shortest) shortest = taken;
  }
  fprintf(stderr, "shortest: %.2f us\n", shortest);
}

/* One run, and its outputs to `file` if there is one; the name of what failed, or NULL. */
static const char* Run(TfLiteInterpreter* interpreter, uint64_t seed, FILE* file) {
  for (int32_t i = 0; i < TfLiteInterpreterGetInputTensorCount(interpreter); ++i) {
    TfLiteTensor* const input = TfLiteInterpreterGetInputTensor(interpreter, i);
    const size_t size = TfLiteTensorByteSize(input);
    uint8_t* const bytes = malloc(size);
    Fill(TfLiteTensorType(input), bytes, size, seed);
    const TfLiteStatus status = TfLiteTensorCopyFromBuffer(input, bytes, size);
    free(bytes);
    if (status != kTfLiteOk) return "TfLiteTensorCopyFromBuffer";
  }
  if (TfLiteInterpreterInvoke(interpreter) != kTfLiteOk) return "TfLiteInterpreterInvoke";
  if (file == NULL) return NULL;
  for (int32_t i = 0; i < TfLiteInterpreterGetOutputTensorCount(interpreter); ++i) {
    const TfLiteTensor* const output = TfLiteInterpreterGetOutputTensor(interpreter, i);
    const size_t size = TfLiteTensorByteSize(output);
    uint8_t* const bytes = malloc(size);
    const TfLiteStatus status = TfLiteTensorCopyToBuffer(output, bytes, size);
    if (status == kTfLiteOk) fwrite(bytes, 1, size, file);
    free(bytes);
    if (status != kTfLiteOk) return "TfLiteTensorCopyToBuffer";
  }
  return NULL;
}

/* Numbers with a comma between two. */
static int ReadShape(const char* text, int* shape) {
  int count = 0;
  for (char* end = NULL; count < kMostDimensions; text = end + 1) {
    shape[count++] = (int)strtol(text, &end, 10);
    if (*end != ',') break;
  }
  return count;
}

int main(int argc, char** argv) {
  if (argc < 3) return Fail("usage: run_model MODEL SEED [...]; it");
  const uint64_t seed = strtoull(argv[2], NULL, 10);
  int repeat = 1;
  int count = 1;
  const char* shapes[kMostShapes];
  int shape_count = 0;
  int times = 0;
  int threads = 2;
  TfLiteDelegate* delegate = NULL;
  void (*delete)(TfLiteDelegate*) = TfLiteExternalDelegateDelete;
  for (int i = 3; i < argc; ++i) {
    if (strcmp(argv[i], "--repeat") == 0 && i + 1 < argc) {
      repeat = atoi(argv[++i]);
    } else if (strcmp(argv[i], "--interpreters") == 0 && i + 1 < argc) {
      count = atoi(argv[++i]);
      if (count < 1 || count > kMostInterpreters) return Fail("--interpreters");
    } else if (strcmp(argv[i], "--resize") == 0 && i + 1 < argc && shape_count < kMostShapes) {
      shapes[shape_count++] = argv[++i];
    } else if (strcmp(argv[i], "--times") == 0 && i + 1 < argc) {
      times = atoi(argv[++i]);
    } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      threads = atoi(argv[++i]);
    } else if (strcmp(argv[i], "--xnnpack") == 0) { /* for int8 */
      TfLiteXNNPackDelegateOptions xnnpack = TfLiteXNNPackDelegateOptionsDefault();
      xnnpack.num_threads = threads;
      xnnpack.flags = 1;
      delegate = TfLiteXNNPackDelegateCreate(&xnnpack);
      delete = TfLiteXNNPackDelegateDelete;
    } else if (strcmp(argv[i], "--delegate") == 0 && i + 1 < argc) {
      TfLiteExternalDelegateOptions options = TfLiteExternalDelegateOptionsDefault(argv[++i]);
      while (i + 1 < argc && strchr(argv[i + 1], '=') != NULL) {
        char* const pair = argv[++i];
        char* const equals = strchr(pair, '=');
        *equals = '\0';
        options.insert(&options, pair, equals + 1);
      }
      delegate = TfLiteExternalDelegateCreate(&options);
      if (delegate == NULL) return Fail("TfLiteExternalDelegateCreate");
    }
  }

  TfLiteModel* const model = TfLiteModelCreateFromFile(argv[1]);
  if (model == NULL) return Fail("TfLiteModelCreateFromFile");
  TfLiteInterpreterOptions* const options = TfLiteInterpreterOptionsCreate();
  TfLiteInterpreterOptionsSetNumThreads(options, threads);
  TfLiteInterpreterOptionsSetErrorReporter(options, Report, NULL);
  if (delegate != NULL) TfLiteInterpreterOptionsAddDelegate(options, delegate);
  TfLiteInterpreter* interpreters[kMostInterpreters];
  for (int i = 0; i < count; ++i) {
    interpreters[i] = TfLiteInterpreterCreate(model, options);
    if (interpreters[i] == NULL) return Fail("TfLiteInterpreterCreate");
  }
  TfLiteInterpreterOptionsDelete(options);
  TfLiteModelDelete(model);
  FILE* const file = times == 0 ? stdout : NULL;
  for (int turn = 0; turn <= shape_count; ++turn) {
    for (int i = 0; i < count; ++i) {
      int shape[kMostDimensions];
      const int rank = turn > 0 ? ReadShape(shapes[turn - 1], shape) : 0;
      if (turn > 0 && TfLiteInterpreterResizeInputTensor(interpreters[i], 0, shape, rank) != 0) {
        return Fail("TfLiteInterpreterResizeInputTensor");
      }
      if (TfLiteInterpreterAllocateTensors(interpreters[i]) != kTfLiteOk) {
        return Fail("TfLiteInterpreterAllocateTensors");
      }
    }
    for (int i = 0; i < repeat * count; ++i) {
      const char* const failed = Run(interpreters[i % count], seed, file);
      if (failed != NULL) return Fail(failed);
    }
  }
  if (times > 0) Time(interpreters[0], times);
  for (int i = 0; i < count; ++i) TfLiteInterpreterDelete(interpreters[i]);
  if (delegate != NULL) delete (delegate);
  return 0;
}
