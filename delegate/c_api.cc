// SPDX-License-Identifier: Apache-2.0
//
// The C interface of delegate.h over DeviceDelegate, the driver and the Coral's timing; nothing
// else happens here.
#include "runtime/c_api.h"

#include <string>
#include <vector>

#include "atoll/delegate.h"
#include "delegate/coral_timing.h"
#include "delegate/delegate.h"
#include "driver/open_device.h"

using atollrt::InvalidArgument;
using atollrt::Status;
using atollrt::ToC;

namespace {

struct DeviceDelegateHandle final : AtollDelegate {
  std::string name;
  std::string description;
  atollrt::DeviceDelegate* device_delegate = nullptr;  // `delegate`, as what it is
};

// Keeps the strings that AtollListDevices hands out.
struct DeviceList {
  std::vector<atollrt::DeviceListing> listings;
  std::vector<AtollDeviceInfo> infos;
};

}  // namespace

extern "C" {

AtollStatus AtollDelegateCreate(const AtollDelegateOptions* options, AtollDelegate** delegate) {
  if (delegate == nullptr) return ToC(InvalidArgument("argument 'delegate' is NULL"));
  atollrt::OpenOptions open;
  if (options != nullptr) {
    if (options->struct_size != sizeof(AtollDelegateOptions)) {
      return ToC(
          InvalidArgument("AtollDelegateOptions.struct_size is %zu, must be %zu; use "
                          "ATOLL_DELEGATE_OPTIONS_INIT",
                          options->struct_size, sizeof(AtollDelegateOptions)));
    }
    if (options->device != nullptr) open.device = options->device;
    open.threads = options->num_threads;
  }
  auto device = atollrt::OpenDevice(open);
  if (!device.ok()) return ToC(device.status());
  auto* handle = new DeviceDelegateHandle;
  handle->name = (*device)->info().name;
  handle->description = atollrt::DescribeDevice((*device)->info());
  auto device_delegate = std::make_unique<atollrt::DeviceDelegate>(*std::move(device));
  handle->device_delegate = device_delegate.get();
  handle->delegate = std::move(device_delegate);
  *delegate = handle;
  return ToC(Status());
}

void AtollDelegateDelete(AtollDelegate* delegate) { delete delegate; }

AtollStatus AtollDelegateGetDeviceInfo(const AtollDelegate* delegate, AtollDeviceInfo* info) {
  if (delegate == nullptr) return ToC(InvalidArgument("argument 'delegate' is NULL"));
  if (info == nullptr) return ToC(InvalidArgument("argument 'info' is NULL"));
  const auto* handle = static_cast<const DeviceDelegateHandle*>(delegate);
  *info = {.name = handle->name.c_str(),
           .description = handle->description.c_str(),
           .available = 1,
           .is_default = 0};
  return ToC(Status());
}

AtollStatus AtollDelegateCompileModel(const AtollDelegate* delegate, const AtollModel* model,
                                      AtollBytesCallback callback, void* user_data) {
  if (delegate == nullptr) return ToC(InvalidArgument("argument 'delegate' is NULL"));
  if (model == nullptr) return ToC(InvalidArgument("argument 'model' is NULL"));
  if (callback == nullptr) return ToC(InvalidArgument("argument 'callback' is NULL"));
  const auto* handle = static_cast<const DeviceDelegateHandle*>(delegate);
  const auto bytes = handle->device_delegate->Compile(model->model->graphs());
  if (!bytes.ok()) return ToC(bytes.status());
  callback(bytes->data(), bytes->size(), user_data);
  return ToC(Status());
}

AtollStatus AtollListDevices(const AtollDeviceInfo** devices, int32_t* count) {
  if (devices == nullptr) return ToC(InvalidArgument("argument 'devices' is NULL"));
  if (count == nullptr) return ToC(InvalidArgument("argument 'count' is NULL"));
  thread_local DeviceList list;
  list.listings = atollrt::ListDevices();
  list.infos.clear();
  for (const atollrt::DeviceListing& listing : list.listings) {
    list.infos.push_back({.name = listing.name.c_str(),
                          .description = listing.description.c_str(),
                          .available = listing.available ? 1 : 0,
                          .is_default = listing.is_default ? 1 : 0});
  }
  *devices = list.infos.data();
  *count = static_cast<int32_t>(list.infos.size());
  return ToC(Status());
}

AtollStatus AtollEstimateCoral(const AtollModel* model, const char* host,
                               AtollCoralEstimate* estimate) {
  if (model == nullptr) return ToC(InvalidArgument("argument 'model' is NULL"));
  if (estimate == nullptr) return ToC(InvalidArgument("argument 'estimate' is NULL"));
  const auto found = atollrt::FindCoralHost(host == nullptr ? "usb3" : host);
  if (!found.ok()) return ToC(found.status());
  const auto program = atollrt::DescribeForCoral(model->model->graph());
  if (!program.ok()) return ToC(program.status());
  const atollrt::CoralEstimate e =
      atollrt::EstimateCoral(*program, {.rates = atollrt::FittedCoralRates(), .host = *found});
  *estimate = {.seconds = e.seconds(),
               .host_seconds = e.host_seconds,
               .link_out_seconds = e.link_out_seconds,
               .dense_seconds = e.dense_seconds,
               .vector_seconds = e.vector_seconds,
               .layer_seconds = e.layer_seconds,
               .parameter_seconds = e.parameter_seconds,
               .link_in_seconds = e.link_in_seconds,
               .upload_seconds = e.upload_seconds,
               .instruction_bytes = static_cast<int64_t>(program->instruction_bytes),
               .input_bytes = static_cast<int64_t>(program->input_bytes),
               .output_bytes = static_cast<int64_t>(program->output_bytes),
               .cached_parameter_bytes = static_cast<int64_t>(e.cached_bytes),
               .streamed_parameter_bytes = static_cast<int64_t>(e.streamed_bytes),
               .device_node_count = program->device_nodes,
               .host_node_count = program->host_nodes};
  return ToC(Status());
}

}  // extern "C"
