/* SPDX-License-Identifier: Apache-2.0
 *
 * Atoll's C interface for quantizing: from a float .tflite model and samples of its inputs to an
 * int8 one, with a report of what that cost. In libatoll-quantize, which needs no other library of
 * Atoll's and may be used beside them. C99; the conventions are those of atoll/runtime.h, but that
 * AtollQuantizeLastError says what went wrong here.
 */
#ifndef ATOLL_QUANTIZE_H_
#define ATOLL_QUANTIZE_H_

#include "atoll/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The sentence for the last failure of a function of this library on this thread. */
ATOLL_EXPORT const char* AtollQuantizeLastError(void);

/* Samples of what the model will see. They are read once from the beginning, and again from there
 * where the system has no room for a temporary file. */
typedef struct AtollQuantizeSamples {
  /* Fills in the next sample: counts[i] values for input i of the model, in its order. Returns 1; 0
   * if there is none; a negative number to end with ATOLL_INVALID_ARGUMENT. */
  int (*next)(void* user_data, float* const* inputs, const size_t* counts, size_t input_count);
  /* The first sample is next. Returns 0, or another number to end with ATOLL_INVALID_ARGUMENT. */
  int (*rewind)(void* user_data);
  void* user_data;
} AtollQuantizeSamples;

typedef enum AtollQuantizeRanges {
  ATOLL_RANGES_MIN_MAX = 0,      /* the smallest and the largest value */
  ATOLL_RANGES_PERCENTILE = 1,   /* a share of the values */
  ATOLL_RANGES_LEAST_SQUARES = 2 /* what gives the smallest squared error */
} AtollQuantizeRanges;

typedef enum AtollQuantizeEnd {
  /* As activations, int8 or int16 with activations_16; float for an output that joins parts whose
   * ranges differ so much that one scale would cost the narrow ones, as boxes and scores. */
  ATOLL_END_QUANTIZED = 0,
  ATOLL_END_FLOAT = 1,
  ATOLL_END_UINT8 = 2,
  ATOLL_END_ONE_SCALE = 3 /* as activations, whatever that costs */
} AtollQuantizeEnd;

typedef struct AtollQuantizeOptions {
  size_t struct_size;          /* sizeof(AtollQuantizeOptions) */
  const char* name;            /* of the model, for the report; NULL: none */
  int32_t ranges;              /* an AtollQuantizeRanges */
  int32_t no_bias_correction;  /* 1: biases stay what they are */
  int32_t compensate_rounding; /* 1: weights are rounded by the errors of those before them */
  int32_t activations_16;      /* 1: int16 activations with int8 weights */
  int32_t input_type;          /* an AtollQuantizeEnd */
  int32_t output_type;         /* an AtollQuantizeEnd */
  int32_t threads;             /* 0: as many as cores, at most 4 */
  /* 1: one scale for the weights of FULLY_CONNECTED, as older readers want (TensorFlow Lite 2.9).
   */
  int32_t per_tensor_fully_connected;
  double percentile;             /* of ATOLL_RANGES_PERCENTILE; 0: 99.99 */
  const char* const* keep_float; /* numbers or names of outputs of nodes that stay float */
  size_t keep_float_count;
  double keep_float_below_db; /* nodes whose own SQNR would be below stay float; 0: none */
  double target_sqnr_db;      /* searches until the logits have it; 0: no search */
  /* Instead of the SQNR, if it is not NULL: writes a number that grows with quality, of which
   * target_accuracy is enough. Any status but ATOLL_OK ends the work with it. */
  AtollStatus (*accuracy)(void* user_data, const void* model, size_t model_size, double* accuracy);
  double target_accuracy;
  /* Called after each step of a phase: "samples", "ranges", "rounding", "bias correction",
   * "report"; total is 0 where nobody knows it, as while samples are read. 0 ends the work with
   * ATOLL_CANCELLED. NULL: nobody is told. */
  int (*progress)(void* user_data, const char* phase, int64_t done, int64_t total);
  void* user_data; /* of accuracy and progress */
} AtollQuantizeOptions;
#define ATOLL_QUANTIZE_OPTIONS_INIT                                                              \
  {                                                                                              \
    sizeof(AtollQuantizeOptions), NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, \
        NULL                                                                                     \
  }

/* A quantized model and its report. */
typedef struct AtollQuantized AtollQuantized;

/* Quantizes a .tflite file of float32. Everything is called on the calling thread. `options` may be
 * NULL. */
ATOLL_EXPORT AtollStatus AtollQuantize(const void* model, size_t model_size,
                                       const AtollQuantizeSamples* samples,
                                       const AtollQuantizeOptions* options,
                                       AtollQuantized** quantized);
/* A float .tflite file that runs everywhere: weights of int8 or float16 between float activations
 * (dynamic range) become float32. AtollQuantizedModel has its bytes, those given if there are no
 * such weights; the report is empty. AtollQuantize does this itself. */
ATOLL_EXPORT AtollStatus AtollQuantizeRepair(const void* model, size_t model_size,
                                             AtollQuantized** repaired);
/* The bytes of the .tflite file, as long as `quantized` lives. */
ATOLL_EXPORT const void* AtollQuantizedModel(const AtollQuantized* quantized, size_t* size);
/* The report as JSON. */
ATOLL_EXPORT const char* AtollQuantizedReport(const AtollQuantized* quantized);
ATOLL_EXPORT void AtollQuantizedDelete(AtollQuantized* quantized);

/* The shape that an input of an ONNX model shall have. */
typedef struct AtollOnnxShape {
  const char* input;   /* its name; "": the only one */
  const int64_t* dims; /* in the order of the ONNX file */
  size_t dim_count;
} AtollOnnxShape;

/* Imports an ONNX file as a float .tflite file: AtollQuantizedModel has its bytes, the report is
 * empty. Inputs of four dimensions become [N, H, W, C], unless `keep_layout` is 1. `shapes` may be
 * NULL if `shape_count` is 0: a first dimension (the batch) without a number is then 1. */
ATOLL_EXPORT AtollStatus AtollImportOnnx(const void* model, size_t model_size,
                                         const AtollOnnxShape* shapes, size_t shape_count,
                                         int keep_layout, AtollQuantized** imported);

/* ATOLL_OK if a .tflite file keeps to TensorFlow Lite's specification of quantization: types,
 * scales that operators share or prescribe, zero points, scales of biases. Else
 * ATOLL_CORRUPT_MODEL, and the error says all that is wrong, a line each. */
ATOLL_EXPORT AtollStatus AtollQuantizeCheck(const void* model, size_t model_size);

#ifdef __cplusplus
}
#endif

#endif /* ATOLL_QUANTIZE_H_ */
