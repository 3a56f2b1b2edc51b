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
  /* What users may do, "USER=WEIGHT" or "USER=WEIGHT:PRIORITY" with commas, users by number: of two
   * that always have requests the one with weight 3 gets three times as much of the device's time
   * as the one with 1; requests of more than their highest priority are taken for that. Others have
   * weight 1 and priority 0. NULL: all are others. */
  const char* shares;
} AtollBrokerOptions;
#define ATOLL_BROKER_OPTIONS_INIT \
  { sizeof(AtollBrokerOptions), NULL, NULL }

/* Opens the device that `device` says, as AtollDelegateCreate; of its options max_partition_nodes
 * and stages mean nothing here. Listens then; clients wait until AtollBrokerRun. ATOLL_DEVICE_BUSY,
 * with its process, if another broker is there, ATOLL_UNSUPPORTED for a Coral. Both options may be
 * NULL. */
ATOLL_EXPORT AtollStatus AtollBrokerCreate(const AtollDelegateOptions* device,
                                           const AtollBrokerOptions* options,
                                           AtollBroker** broker);
/* Not while AtollBrokerRun is in progress. */
ATOLL_EXPORT void AtollBrokerDelete(AtollBroker* broker);

/* Serves, until AtollBrokerStop and the end of what is under way then, at most 10 seconds; once. */
ATOLL_EXPORT AtollStatus AtollBrokerRun(AtollBroker* broker);
/* From any thread, and from a signal's handler. */
ATOLL_EXPORT void AtollBrokerStop(AtollBroker* broker);

/* Of its socket; and a line on its device. They live as long as the broker. */
ATOLL_EXPORT const char* AtollBrokerGetPath(const AtollBroker* broker);
ATOLL_EXPORT const char* AtollBrokerGetDeviceDescription(const AtollBroker* broker);

#ifdef __cplusplus
}
#endif

#endif /* ATOLL_BROKER_H_ */
