// SPDX-License-Identifier: Apache-2.0
//
// What libatoll-core has in place of c_api_devices.cc, c_api_files.cc and coral_partition.cc.
#include "atoll/delegate.h"
#include "delegate/coral_partition.h"
#include "runtime/c_api.h"

namespace atollrt {

Result<std::vector<CoralPartition>> ReadCoralPartitions(const Graph&, uint64_t,
                                                        std::vector<std::string>*) {
  return Unsupported("this program was built without the Coral (libatoll-core)");
}

}  // namespace atollrt

namespace {

AtollStatus Absent(const char* what) {
  return atollrt::ToC(atollrt::Unsupported("%s is not in libatoll-core; link libatoll", what));
}

}  // namespace

extern "C" {

AtollStatus AtollDiagnose(const char*, const AtollFinding**, int32_t*) {
  return Absent("AtollDiagnose");
}

AtollStatus AtollDeviceSelfTest(const char*, const AtollSelfTestResult**, int32_t*) {
  return Absent("AtollDeviceSelfTest");
}

AtollStatus AtollEstimateCoral(const AtollModel*, const char*, AtollCoralEstimate*) {
  return Absent("AtollEstimateCoral");
}

AtollStatus AtollDelegateCompileModel(const AtollDelegate*, const AtollModel*, AtollBytesCallback,
                                      void*) {
  return Absent("AtollDelegateCompileModel");
}

AtollStatus AtollExecutablesDisassemble(const AtollExecutables*, int32_t, AtollAssemblyParameters,
                                        AtollBytesCallback, void*) {
  return Absent("AtollExecutablesDisassemble");
}

AtollStatus AtollAssemble(const char*, size_t, AtollBytesCallback, void*) {
  return Absent("AtollAssemble");
}

}  // extern "C"
