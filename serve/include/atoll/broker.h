/* SPDX-License-Identifier: Apache-2.0
 *
 * A broker: one device for many programs, which open it as the device "broker" (docs/broker.md).
 * Conventions as in atoll/runtime.h. Not in libatoll-core, which does not know the device either.
 */
#ifndef ATOLL_BROKER_H_
#define ATOLL_BROKER_H_

#include "atoll/delegate.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct AtollBroker AtollBroker;

typedef struct AtollBrokerOptions {
  size_t struct_size;
  /* Where it listens; NULL: $ATOLL_BROKER, else $XDG_RUNTIME_DIR/atoll/broker.sock, else
   * /run/atoll/broker.sock. */
  const char* socket_path;
} AtollBrokerOptions;
#define ATOLL_BROKER_OPTIONS_INIT \
  { sizeof(AtollBrokerOptions), NULL }

/* Opens the device that `device` says, as AtollDelegateCreate; of its options max_partition_nodes
 * and stages mean nothing here. Listens then; clients wait until AtollBrokerRun. ATOLL_DEVICE_BUSY,
 * with its process, if another broker is there. Both options may be NULL. */
ATOLL_EXPORT AtollStatus AtollBrokerCreate(const AtollDelegateOptions* device,
                                           const AtollBrokerOptions* options, AtollBroker** broker);
/* Not while AtollBrokerRun is in progress. */
ATOLL_EXPORT void AtollBrokerDelete(AtollBroker* broker);

/* What a program may do. */
typedef struct AtollBrokerShare {
  size_t struct_size;
  int64_t user, group; /* whose programs, by number; -1: of anyone */
  /* Of two that always have requests the one with weight 3 gets three times as much of the device's
   * time as the one with 1. 0.001 to 1000. */
  double weight;
  int32_t priority_max;        /* requests of more are taken for this; at least 0 */
  int32_t may_reset;           /* the device, for all */
  int32_t requests;            /* at a time, 1 to 128 */
  int32_t executables, arenas; /* that it keeps: programs, and pieces of its own memory */
  int64_t bytes;               /* of both together */
} AtollBrokerShare;
#define ATOLL_BROKER_SHARE_INIT \
  { sizeof(AtollBrokerShare), -1, -1, 1, 0, 0, 32, 16, 64, INT64_C(256) << 20 }

/* From now on, for programs that are there, too: what they have beyond it they keep. Of the `count`
 * shares a program has the first that is for its user and for one of its groups, and without any
 * ATOLL_BROKER_SHARE_INIT, as everybody has before the first call. From any thread. */
ATOLL_EXPORT AtollStatus AtollBrokerSetShares(AtollBroker* broker,
                                              const AtollBrokerShare* const* shares, int32_t count);

/* Serves, until AtollBrokerStop and the end of what is under way then, at most 10 seconds; once. */
ATOLL_EXPORT AtollStatus AtollBrokerRun(AtollBroker* broker);
/* From any thread, and from a signal's handler. */
ATOLL_EXPORT void AtollBrokerStop(AtollBroker* broker);

/* Of its socket; and a line on its device. They live as long as the broker. */
ATOLL_EXPORT const char* AtollBrokerGetPath(const AtollBroker* broker);
ATOLL_EXPORT const char* AtollBrokerGetDeviceDescription(const AtollBroker* broker);

/* ---- A broker from outside ------------------------------------------------------------------ */

typedef struct AtollBrokerClient {
  /* As the kernel says; process 0: one that the broker cannot see, as in a container. */
  int64_t user;
  int32_t process;
  const char* name; /* as it says of itself: its command line, or anything */
  double weight;
  int32_t priority_max;
  int64_t requests; /* that it was answered */
  double device_seconds;
  double share; /* of the time that all clients had of the device in the last 1 to 2 seconds */
  int32_t in_flight, waiting; /* requests */
  int32_t executables;
  int64_t bytes; /* of them and of its memory */
} AtollBrokerClient;

/* The clients of the broker at `socket_path`, NULL as for AtollBrokerOptions: all of them for root
 * and the broker's user, others see their own. ATOLL_NOT_FOUND if nobody is there. The array stays
 * valid until the next call on the same thread. */
ATOLL_EXPORT AtollStatus AtollListBrokerClients(const char* socket_path,
                                                const AtollBrokerClient** clients, int32_t* count);

/* Makes the device of that broker begin anew; requests that are under way are sent again.
 * ATOLL_PERMISSION_DENIED without a share that may. */
ATOLL_EXPORT AtollStatus AtollResetBrokerDevice(const char* socket_path);

#ifdef __cplusplus
}
#endif

#endif /* ATOLL_BROKER_H_ */
