// SPDX-License-Identifier: Apache-2.0
#include "compat/tflite_delegate/device.h"

#include <bit>
#include <cstring>
#include <random>

namespace atollcompat {
namespace {

// SipHash-1-3 (Aumasson, Bernstein 2012).
uint64_t SipHash(std::span<const uint8_t> bytes, uint64_t key0, uint64_t key1) {
  uint64_t a = key0 ^ 0x736f6d6570736575;
  uint64_t b = key1 ^ 0x646f72616e646f6d;
  uint64_t c = key0 ^ 0x6c7967656e657261;
  uint64_t d = key1 ^ 0x7465646279746573;
  const auto round = [&] {
    a += b;
    b = std::rotl(b, 13) ^ a;
    a = std::rotl(a, 32);
    c += d;
    d = std::rotl(d, 16) ^ c;
    a += d;
    d = std::rotl(d, 21) ^ a;
    c += b;
    b = std::rotl(b, 17) ^ c;
    c = std::rotl(c, 32);
  };
  const auto absorb = [&](uint64_t word) {
    d ^= word;
    round();
    a ^= word;
  };
  const size_t whole = bytes.size() / sizeof(uint64_t) * sizeof(uint64_t);
  for (size_t i = 0; i < whole; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    absorb(word);
  }
  uint64_t last = static_cast<uint64_t>(bytes.size()) << 56;
  if (whole < bytes.size()) std::memcpy(&last, bytes.data() + whole, bytes.size() - whole);
  absorb(last);
  c ^= 0xff;
  for (int i = 0; i < 3; ++i) round();
  return a ^ b ^ c ^ d;
}

}  // namespace

std::shared_ptr<Device> Device::Open(const DeviceOptions& options, std::string* error) {
  AtollDelegateOptions wanted = ATOLL_DELEGATE_OPTIONS_INIT;
  wanted.device = options.device.c_str();
  wanted.num_threads = options.num_threads;
  if (!options.performance.empty()) wanted.performance = options.performance.c_str();
  if (!options.on_device_loss.empty()) wanted.on_device_loss = options.on_device_loss.c_str();
  if (!options.faults.empty()) wanted.faults = options.faults.c_str();
  AtollDelegate* handle = nullptr;
  if (AtollDelegateCreate(&wanted, &handle) != ATOLL_OK) {
    *error = AtollLastError();
    return nullptr;
  }
  return std::shared_ptr<Device>(new Device(handle));
}

Device::Device(AtollDelegate* handle) : handle_(handle) {
  std::random_device random;
  for (uint64_t& word : key_) word = static_cast<uint64_t>(random()) << 32 | random();
}

Device::~Device() { AtollDelegateDelete(handle_); }

Device::Digest Device::DigestOf(std::span<const uint8_t> bytes) const {
  return {SipHash(bytes, key_[0], key_[1]), SipHash(bytes, key_[2], key_[3])};
}

std::shared_ptr<AtollModel> Device::ModelOf(std::span<const uint8_t> bytes, std::string* error) {
  const Digest digest = DigestOf(bytes);
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(models_, [](const auto& known) {
      // Nobody else can come to it now; who was there last has left it with its mutex.
      const std::unique_lock idle(known.second->mutex, std::try_to_lock);
      return idle.owns_lock() && known.second.use_count() == 1 && known.second->model.expired();
    });
    std::shared_ptr<Entry>& known = models_[digest];
    if (known == nullptr) known = std::make_shared<Entry>();
    entry = known;
  }
  const std::lock_guard lock(entry->mutex);
  if (std::shared_ptr<AtollModel> model = entry->model.lock(); model != nullptr) return model;
  AtollModel* made = nullptr;
  if (AtollModelCreateFromBuffer(bytes.data(), bytes.size(), &made) != ATOLL_OK) {
    *error = AtollLastError();
    return nullptr;
  }
  std::shared_ptr<AtollModel> model(made, AtollModelDelete);
  entry->model = model;
  return model;
}

}  // namespace atollcompat
