// SPDX-License-Identifier: Apache-2.0
//
// The bundled classifier over the whole Fashion-MNIST test set, through the public interface: it is
// as accurate as promised, and the emulated device gives the CPU's bytes for every picture.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "atoll/broker.h"
#include "atoll/delegate.h"
#include "atoll/runtime.h"
#include "tests/support/absent.h"

namespace {

constexpr char kDataset[] = "/usr/share/datasets/fashion-mnist";
constexpr char kModel[] = ATOLL_SOURCE_DIR "/models/fashion/fashion_int8.tflite";
constexpr size_t kImages = 10'000;
constexpr size_t kPixels = 28 * 28;
constexpr size_t kClasses = 10;

// The contents of a gzipped IDX file behind its header; empty if there is no such file.
std::vector<uint8_t> ReadIdx(const std::string& name, size_t header_bytes, size_t size) {
  gzFile file = gzopen((std::string(kDataset) + "/" + name).c_str(), "rb");
  if (file == nullptr) return {};
  std::vector<uint8_t> bytes(header_bytes + size);
  const int read = gzread(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  EXPECT_EQ(read, static_cast<int>(bytes.size())) << name;
  return {bytes.begin() + static_cast<std::ptrdiff_t>(header_bytes), bytes.end()};
}

// The model's output bytes for every image, one after the other.
std::vector<int8_t> RunAll(const AtollModel* model, AtollDelegate* delegate,
                           const std::vector<uint8_t>& images) {
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.delegate = delegate;
  AtollInterpreter* interpreter = nullptr;
  EXPECT_EQ(AtollInterpreterCreate(model, &options, &interpreter), ATOLL_OK) << AtollLastError();
  if (interpreter == nullptr) return {};
  AtollTensor* input = AtollInterpreterGetInputTensor(interpreter, 0);
  const AtollTensor* output = AtollInterpreterGetOutputTensor(interpreter, 0);
  EXPECT_EQ(AtollTensorByteSize(input), kPixels);
  EXPECT_EQ(AtollTensorByteSize(output), kClasses);
  std::vector<int8_t> outputs(kImages * kClasses);
  for (size_t i = 0; i < kImages; ++i) {
    auto* stored = static_cast<int8_t*>(AtollTensorData(input));
    for (size_t k = 0; k < kPixels; ++k) {
      stored[k] = static_cast<int8_t>(images[i * kPixels + k] - 128);
    }
    const AtollStatus status = AtollInterpreterInvoke(interpreter);
    EXPECT_EQ(status, ATOLL_OK) << AtollLastError();
    if (status != ATOLL_OK) break;
    std::copy_n(static_cast<const int8_t*>(AtollTensorConstData(output)), kClasses,
                outputs.data() + i * kClasses);
  }
  AtollInterpreterDelete(interpreter);
  return outputs;
}

TEST(FashionModel, IsAccurateAndTheSameOnTheEmulator) {
  const std::vector<uint8_t> images = ReadIdx("t10k-images-idx3-ubyte.gz", 16, kImages * kPixels);
  const std::vector<uint8_t> labels = ReadIdx("t10k-labels-idx1-ubyte.gz", 8, kImages);
  if (images.empty() || labels.empty()) {
    atollrt::ReportAbsent("the Debian package dataset-fashion-mnist");
    GTEST_SKIP();
  }
  AtollModel* model = nullptr;
  ASSERT_EQ(AtollModelCreateFromFile(kModel, &model), ATOLL_OK) << AtollLastError();
  AtollDelegateOptions options = ATOLL_DELEGATE_OPTIONS_INIT;
  options.device = "emu";
  AtollDelegate* emulator = nullptr;
  ASSERT_EQ(AtollDelegateCreate(&options, &emulator), ATOLL_OK) << AtollLastError();

  const std::vector<int8_t> on_cpu = RunAll(model, nullptr, images);
  const std::vector<int8_t> on_emulator = RunAll(model, emulator, images);
  AtollDelegateDelete(emulator);
  AtollModelDelete(model);

  EXPECT_EQ(on_cpu, on_emulator);
  size_t correct = 0;
  for (size_t i = 0; i < kImages; ++i) {
    const auto scores = on_emulator.begin() + static_cast<std::ptrdiff_t>(i * kClasses);
    correct += std::max_element(scores, scores + kClasses) - scores == labels[i];
  }
  std::printf("%zu of %zu test images are classified correctly\n", correct, kImages);
  EXPECT_GE(correct, kImages * 92 / 100);
}

// Whatever inputs and outputs lie in: the device reads and writes it there.
TEST(FashionModel, NothingIsCopiedForADeviceOnPcie) {
  AtollModel* model = nullptr;
  ASSERT_EQ(AtollModelCreateFromFile(kModel, &model), ATOLL_OK) << AtollLastError();
  AtollDelegateOptions device = ATOLL_DELEGATE_OPTIONS_INIT;
  device.device = "emu:pcie";
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  AtollInterpreter* on_cpu = nullptr;
  ASSERT_EQ(AtollInterpreterCreate(model, &options, &on_cpu), ATOLL_OK) << AtollLastError();
  ASSERT_EQ(AtollDelegateCreate(&device, &options.delegate), ATOLL_OK) << AtollLastError();
  AtollInterpreter* interpreter = nullptr;
  ASSERT_EQ(AtollInterpreterCreate(model, &options, &interpreter), ATOLL_OK) << AtollLastError();

  std::vector<int8_t> picture(kPixels);
  std::vector<int8_t> wanted(kClasses);
  int runs = 0;
  const auto draw = [&] {
    ++runs;
    for (size_t i = 0; i < kPixels; ++i) picture[i] = static_cast<int8_t>(i * 31 + runs * 7);
    AtollTensor* const input = AtollInterpreterGetInputTensor(on_cpu, 0);
    ASSERT_EQ(AtollTensorCopyFromBuffer(input, picture.data(), kPixels), ATOLL_OK);
    ASSERT_EQ(AtollInterpreterInvoke(on_cpu), ATOLL_OK) << AtollLastError();
    const AtollTensor* const output = AtollInterpreterGetOutputTensor(on_cpu, 0);
    ASSERT_EQ(AtollTensorCopyToBuffer(output, wanted.data(), kClasses), ATOLL_OK);
  };
  const auto expect_no_copy = [&] {
    ASSERT_EQ(AtollInterpreterInvoke(interpreter), ATOLL_OK) << AtollLastError();
    int64_t copied = -1;
    EXPECT_EQ(AtollInterpreterGetCopiedBytes(interpreter, &copied), ATOLL_OK);
    EXPECT_EQ(copied, 0);
    AtollInvokeInfo info;
    EXPECT_EQ(AtollInterpreterGetInvokeInfo(interpreter, &info), ATOLL_OK);
    EXPECT_GE(info.bytes_to_device, static_cast<int64_t>(kPixels));
  };

  // In the interpreter's own memory; the first time with an upload.
  for (int i = 0; i < 2; ++i) {
    draw();
    AtollTensor* const input = AtollInterpreterGetInputTensor(interpreter, 0);
    ASSERT_EQ(AtollTensorCopyFromBuffer(input, picture.data(), kPixels), ATOLL_OK);
    expect_no_copy();
    std::vector<int8_t> got(kClasses);
    const AtollTensor* const output = AtollInterpreterGetOutputTensor(interpreter, 0);
    ASSERT_EQ(AtollTensorCopyToBuffer(output, got.data(), kClasses), ATOLL_OK);
    EXPECT_EQ(got, wanted);
  }
  for (const AtollBufferKind kind : {ATOLL_BUFFER_HEAP, ATOLL_BUFFER_CALLER, ATOLL_BUFFER_DMA}) {
    std::vector<int8_t> memory(kPixels + kClasses);
    int released = 0;
    AtollBufferOptions wishes = ATOLL_BUFFER_OPTIONS_INIT;
    wishes.kind = kind;
    wishes.data = kind == ATOLL_BUFFER_HEAP ? nullptr : memory.data();
    wishes.size = memory.size();
    wishes.user_data = &released;
    if (kind != ATOLL_BUFFER_HEAP) {
      wishes.release = [](void* count) { ++*static_cast<int*>(count); };
    }
    AtollBuffer* buffer = nullptr;
    ASSERT_EQ(AtollBufferCreate(&wishes, &buffer), ATOLL_OK) << AtollLastError();
    auto* const data = static_cast<int8_t*>(AtollBufferData(buffer));
    ASSERT_EQ(AtollInterpreterSetInputBuffer(interpreter, 0, buffer, 0), ATOLL_OK);
    ASSERT_EQ(AtollInterpreterSetOutputBuffer(interpreter, 0, buffer, kPixels), ATOLL_OK);
    AtollBufferDelete(buffer);
    for (int i = 0; i < 2; ++i) {
      draw();
      std::copy(picture.begin(), picture.end(), data);
      expect_no_copy();
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), data + kPixels));
    }
    // On the CPU they are buffers like others.
    if (kind == ATOLL_BUFFER_DMA) {
      wishes.release = nullptr;
      ASSERT_EQ(AtollBufferCreate(&wishes, &buffer), ATOLL_OK) << AtollLastError();
      EXPECT_EQ(AtollInterpreterSetInputBuffer(on_cpu, 0, buffer, 0), ATOLL_OK);
      EXPECT_EQ(AtollInterpreterSetInputBuffer(on_cpu, 0, nullptr, 0), ATOLL_OK);
      AtollBufferDelete(buffer);
    }
    EXPECT_EQ(AtollInterpreterSetInputBuffer(interpreter, 0, nullptr, 0), ATOLL_OK);
    EXPECT_EQ(AtollInterpreterSetOutputBuffer(interpreter, 0, nullptr, 0), ATOLL_OK);
    EXPECT_EQ(released, kind == ATOLL_BUFFER_HEAP ? 0 : 1);
  }
  AtollInterpreterDelete(interpreter);
  AtollInterpreterDelete(on_cpu);
  AtollDelegateDelete(options.delegate);
  AtollModelDelete(model);
}

// A broker of an emulated device, which serves until its end.
class ServingBroker {
 public:
  ServingBroker() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    const std::string path = folder_ + "/broker.sock";
    AtollDelegateOptions wishes = ATOLL_DELEGATE_OPTIONS_INIT;
    wishes.device = "emu";
    AtollBrokerOptions place = ATOLL_BROKER_OPTIONS_INIT;
    place.socket_path = path.c_str();
    EXPECT_EQ(AtollBrokerCreate(&wishes, &place, &broker_), ATOLL_OK) << AtollLastError();
    thread_ =
        std::thread([this] { EXPECT_EQ(AtollBrokerRun(broker_), ATOLL_OK) << AtollLastError(); });
    device_ = "broker:" + path;
  }
  ~ServingBroker() {
    AtollBrokerStop(broker_);
    thread_.join();
    AtollBrokerDelete(broker_);
    std::filesystem::remove_all(folder_);
  }
  ServingBroker(const ServingBroker&) = delete;
  ServingBroker& operator=(const ServingBroker&) = delete;
  const std::string& device() const { return device_; }  // the name of its device

 private:
  std::string folder_ = testing::TempDir() + "fashion_XXXXXX";
  AtollBroker* broker_ = nullptr;
  std::thread thread_;
  std::string device_;
};

// Buffers of Atoll's own are neither copied for a broker; of one that others have, too, outputs.
TEST(Fashion, SharesBuffersWithABroker) {
  const ServingBroker broker;
  AtollModel* model = nullptr;
  ASSERT_EQ(AtollModelCreateFromFile(kModel, &model), ATOLL_OK) << AtollLastError();
  AtollDelegateOptions wishes = ATOLL_DELEGATE_OPTIONS_INIT;
  wishes.device = broker.device().c_str();
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  AtollInterpreter *interpreter = nullptr, *on_cpu = nullptr;
  ASSERT_EQ(AtollInterpreterCreate(model, nullptr, &on_cpu), ATOLL_OK) << AtollLastError();
  ASSERT_EQ(AtollDelegateCreate(&wishes, &options.delegate), ATOLL_OK) << AtollLastError();
  ASSERT_EQ(AtollInterpreterCreate(model, &options, &interpreter), ATOLL_OK) << AtollLastError();

  // A ring of frames with the output behind, which this test has mapped, too.
  constexpr size_t kFrames = 3, kFrameBytes = 1024, kBytes = kFrames * kFrameBytes + 4096;
  const int file = memfd_create("frames", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(file, kBytes), 0);
  auto* const mine =
      static_cast<uint8_t*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  ASSERT_NE(mine, MAP_FAILED);
  AtollBufferOptions shared = ATOLL_BUFFER_OPTIONS_INIT;
  shared.kind = ATOLL_BUFFER_SHARED;
  shared.fd = file;
  shared.size = kBytes - 64;
  shared.offset = 64;
  AtollBuffer* others = nullptr;
  shared.size = kBytes;
  EXPECT_EQ(AtollBufferCreate(&shared, &others), ATOLL_INVALID_ARGUMENT);  // beyond its end
  shared.offset = -64;
  EXPECT_EQ(AtollBufferCreate(&shared, &others), ATOLL_INVALID_ARGUMENT);
  shared.offset = 64;
  shared.size = kBytes - 64;
  ASSERT_EQ(AtollBufferCreate(&shared, &others), ATOLL_OK) << AtollLastError();
  EXPECT_NE(ftruncate(file, 0), 0);  // nobody makes it smaller now
  close(file);
  AtollBufferOptions own_options = ATOLL_BUFFER_OPTIONS_INIT;
  own_options.kind = ATOLL_BUFFER_SHARED;
  own_options.size = kFrameBytes;
  AtollBuffer* own = nullptr;
  ASSERT_EQ(AtollBufferCreate(&own_options, &own), ATOLL_OK) << AtollLastError();
  EXPECT_EQ(AtollBufferSize(own), kFrameBytes);

  for (int round = 0; round < 12; ++round) {
    const size_t frame = static_cast<size_t>(round) % kFrames * kFrameBytes + 64;
    std::vector<uint8_t> image(kPixels);
    for (size_t k = 0; k < kPixels; ++k) image[k] = static_cast<uint8_t>(k * k + round);
    std::copy(image.begin(), image.end(), mine + frame);
    const bool to_own = round % 2 == 0;
    const size_t output_at = to_own ? 128 : kFrames * kFrameBytes;
    ASSERT_EQ(AtollInterpreterSetInputBuffer(interpreter, 0, others, frame - 64), ATOLL_OK)
        << AtollLastError();
    ASSERT_EQ(AtollInterpreterSetOutputBuffer(interpreter, 0, to_own ? own : others, output_at),
              ATOLL_OK)
        << AtollLastError();
    ASSERT_EQ(AtollInterpreterInvoke(interpreter), ATOLL_OK) << AtollLastError();
    int64_t copied = -1;
    EXPECT_EQ(AtollInterpreterGetCopiedBytes(interpreter, &copied), ATOLL_OK);
    EXPECT_EQ(copied, to_own ? 0 : int64_t{kClasses});
    ASSERT_EQ(
        AtollTensorCopyFromBuffer(AtollInterpreterGetInputTensor(on_cpu, 0), image.data(), kPixels),
        ATOLL_OK);
    ASSERT_EQ(AtollInterpreterInvoke(on_cpu), ATOLL_OK) << AtollLastError();
    const uint8_t* const output = to_own ? static_cast<const uint8_t*>(AtollBufferData(own)) + 128
                                         : mine + 64 + kFrames * kFrameBytes;
    EXPECT_EQ(std::memcmp(AtollTensorConstData(AtollInterpreterGetOutputTensor(on_cpu, 0)), output,
                          kClasses),
              0);
  }
  AtollBufferDelete(others);
  AtollBufferDelete(own);
  AtollInterpreterDelete(interpreter);
  AtollInterpreterDelete(on_cpu);
  AtollDelegateDelete(options.delegate);
  AtollModelDelete(model);
  munmap(mine, kBytes);

  // What is no memfd that can be sealed, and what has other seals.
  for (const int wrong :
       {open("/dev/null", O_RDWR | O_CLOEXEC), memfd_create("sealed", MFD_CLOEXEC), 1 << 20}) {
    shared.fd = wrong;
    EXPECT_EQ(AtollBufferCreate(&shared, &others), ATOLL_INVALID_ARGUMENT) << wrong;
    if (wrong < 1 << 20) close(wrong);
  }
}

// The broker reads and writes the interpreter's memory where it is.
TEST(Fashion, IsNotCopiedForABroker) {
  const ServingBroker broker;
  AtollDelegateOptions wishes = ATOLL_DELEGATE_OPTIONS_INIT;
  AtollModel* model = nullptr;
  ASSERT_EQ(AtollModelCreateFromFile(kModel, &model), ATOLL_OK) << AtollLastError();
  AtollDelegate* delegates[2] = {};
  AtollInterpreter* interpreters[2] = {};
  const std::string devices[2] = {"emu", broker.device()};
  for (int i = 0; i < 2; ++i) {
    wishes.device = devices[i].c_str();
    ASSERT_EQ(AtollDelegateCreate(&wishes, &delegates[i]), ATOLL_OK) << AtollLastError();
    AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
    options.delegate = delegates[i];
    ASSERT_EQ(AtollInterpreterCreate(model, &options, &interpreters[i]), ATOLL_OK)
        << AtollLastError();
  }
  for (int round = 0; round < 10; ++round) {
    std::vector<int8_t> outputs[2];
    for (int i = 0; i < 2; ++i) {
      auto* const input = static_cast<uint8_t*>(
          AtollTensorData(AtollInterpreterGetInputTensor(interpreters[i], 0)));
      for (size_t k = 0; k < kPixels; ++k) input[k] = static_cast<uint8_t>(k * k + round);
      ASSERT_EQ(AtollInterpreterInvoke(interpreters[i]), ATOLL_OK) << AtollLastError();
      const auto* const output = static_cast<const int8_t*>(
          AtollTensorConstData(AtollInterpreterGetOutputTensor(interpreters[i], 0)));
      outputs[i].assign(output, output + kClasses);
      int64_t copied = -1;
      EXPECT_EQ(AtollInterpreterGetCopiedBytes(interpreters[i], &copied), ATOLL_OK);
      EXPECT_EQ(copied, 0);
    }
    EXPECT_EQ(outputs[0], outputs[1]);
  }
  for (int i = 0; i < 2; ++i) {
    AtollInterpreterDelete(interpreters[i]);
    AtollDelegateDelete(delegates[i]);
  }
  AtollModelDelete(model);
}

}  // namespace
