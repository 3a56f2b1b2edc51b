/* SPDX-License-Identifier: Apache-2.0
 *
 * A client of the Open Inference Protocol over gRPC, for programs that put load on servers. It is
 * in the module libatoll-grpc, which few need: load that and ask it for ATOLL_OIP_MODULE_SYMBOL.
 * Conventions as in atoll/runtime.h, but that sentences are written to the caller's memory.
 */
#ifndef ATOLL_OIP_H_
#define ATOLL_OIP_H_

#include "atoll/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What this header is: another one is another number. */
#define ATOLL_OIP_INTERFACE 1
#define ATOLL_OIP_MODULE_FILE "libatoll-grpc.so.0"
#define ATOLL_OIP_MODULE_SYMBOL "AtollOipModuleOf"

/* A connection. One thread at a time. */
typedef struct AtollOipClient AtollOipClient;

typedef struct AtollOipAddress {
  const char* host_and_port;
  int32_t tls;
  const char* ca;    /* PEM, who signs the server's certificate; "": those that the system trusts */
  const char* token; /* "": none */
} AtollOipAddress;

/* As the server says, and nobody has checked. */
typedef struct AtollOipTensor {
  const char* name;
  const char* datatype; /* "INT8" */
  const int64_t* shape;
  int32_t rank;
} AtollOipTensor;

/* Of the latest call; lives until the next one. */
typedef struct AtollOipBytes {
  const void* data;
  size_t size;
} AtollOipBytes;

typedef struct AtollOipModule {
  int32_t interface; /* ATOLL_OIP_INTERFACE */
  /* Sentences are cut to `message_size` bytes, with a NUL at the end. */
  AtollStatus (*connect)(const AtollOipAddress* address, int32_t timeout_ms,
                         AtollOipClient** client, char* message, size_t message_size);
  void (*disconnect)(AtollOipClient* client);
  /* What a model takes and gives; lives until the next call of this function. */
  AtollStatus (*describe)(AtollOipClient* client, const char* model, int32_t timeout_ms,
                          const AtollOipTensor** inputs, int32_t* input_count,
                          const AtollOipTensor** outputs, int32_t* output_count, char* message,
                          size_t message_size);
  /* Inputs as `tensors`, whose bytes are `bytes`; the first output, whose size is the server's. */
  AtollStatus (*infer)(AtollOipClient* client, const char* model, const AtollOipTensor* tensors,
                       const AtollOipBytes* bytes, int32_t count, int32_t timeout_ms,
                       AtollOipBytes* first_output, char* message, size_t message_size);
} AtollOipModule;

/* typedef of the module's function: never NULL. */
typedef const AtollOipModule* (*AtollOipModuleFunction)(void);

#ifdef __cplusplus
}
#endif

#endif /* ATOLL_OIP_H_ */
