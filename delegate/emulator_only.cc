// SPDX-License-Identifier: Apache-2.0
//
// What libatoll-core has in place of c_api_full.cc and coral_partition.cc.
#include "atoll/delegate.h"
#include "delegate/coral_partition.h"
#include "runtime/c_api.h"

namespace atollrt {

Result<std::vector<CoralPartition>> ReadCoralPartitions(const Graph&, const DeviceInfo&,
                                                        std::vector<std::string>*) {
  return Unsupported("this program was built without the Coral (libatoll-core)");
}

}  // namespace atollrt

namespace {

AtollStatus Absent(const char* what) {
  return atollrt::ToC(atollrt::Unsupported("%s is not in libatoll-core; link libatoll", what));
}

}  // namespace

#define ATOLL_ABSENT(Function, ...) \
  AtollStatus Function(__VA_ARGS__) { return Absent(#Function); }

extern "C" {
ATOLL_ABSENT(AtollDiagnose, const char*, const AtollFinding**, int32_t*)
ATOLL_ABSENT(AtollDeviceSelfTest, const char*, const AtollSelfTestResult**, int32_t*)
ATOLL_ABSENT(AtollEstimateCoral, const AtollModel*, const char*, AtollCoralEstimate*)
ATOLL_ABSENT(AtollDelegateCompileModel, const AtollDelegate*, const AtollModel*, AtollBytesCallback,
             void*)
ATOLL_ABSENT(AtollExecutablesDisassemble, const AtollExecutables*, int32_t, AtollAssemblyParameters,
             AtollBytesCallback, void*)
ATOLL_ABSENT(AtollAssemble, const char*, size_t, AtollBytesCallback, void*)
}  // extern "C"
