// SPDX-License-Identifier: Apache-2.0
//
// Public pairs of a float model and the int8 model that TensorFlow Lite's converter made of it:
// what the quantizer makes must be better, on the same inputs, and the emulated device must agree
// with the CPU in every byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "quantize/check_prescriptions.h"
#include "quantize/quantizer.h"
#include "runtime/interpreter.h"
#include "tests/quantize/quantize_testing.h"
#include "tests/support/absent.h"
#include "tests/support/allocation_meter.h"

namespace atollrt {
namespace {

using SampleList = std::vector<ListedSamples::Sample>;

std::string FloatModel(const std::string& name) {
  return std::string(ATOLL_SHARED_DIR) + "/models/float/" + name;
}

class Anchors : public testing::Test {
 protected:
  void SetUp() override {
    if (std::filesystem::exists(FloatModel("MANIFEST.md"))) return;
    ReportAbsent("reference data: models/float");
    GTEST_SKIP();
  }
};

// Bytes of all outputs for each sample, on the CPU or a device.
std::vector<std::vector<uint8_t>> Outputs(std::span<const uint8_t> model, Delegate* delegate,
                                          const SampleList& samples) {
  auto loaded = Model::FromBuffer(model);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  auto interpreter = Interpreter::Create(*loaded, {.threads = 1, .delegate = delegate});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status().message();
  if (delegate != nullptr) {
    EXPECT_FALSE((*interpreter)->partitions().empty());
  }
  std::vector<std::vector<uint8_t>> outputs;
  for (const ListedSamples::Sample& sample : samples) {
    const Graph& graph = (*interpreter)->graph();
    const Tensor& input = graph.tensors[graph.inputs[0]];
    const std::span<uint8_t> bytes = (*interpreter)->TensorBytes(graph.inputs[0]);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const float steps = std::round(sample[0][i] / input.scale());
      bytes[i] = static_cast<uint8_t>(static_cast<int8_t>(
          std::clamp(steps + static_cast<float>(input.zero_point()), -128.0f, 127.0f)));
    }
    EXPECT_TRUE((*interpreter)->Invoke().ok());
    std::vector<uint8_t> all;
    for (const int32_t output : graph.outputs) {
      const std::span<const uint8_t> values = (*interpreter)->TensorBytes(output);
      all.insert(all.end(), values.begin(), values.end());
    }
    outputs.push_back(std::move(all));
  }
  return outputs;
}

void ExpectSameOnEmulator(std::span<const uint8_t> model, const SampleList& samples) {
  auto device = OpenDevice({.device = "emu", .threads = 1});
  ASSERT_TRUE(device.ok());
  DeviceDelegate delegate(*std::move(device));
  const SampleList few(samples.begin(), samples.begin() + 4);
  EXPECT_EQ(Outputs(model, nullptr, few), Outputs(model, &delegate, few));
}

// The yardstick itself: files of TensorFlow Lite's converter have the figures that others measured.
TEST_F(Anchors, ConvertersFiles) {
  const SampleList small = MakeCrops(1, 32, 1, 0, 5), large = MakeCrops(1, 96, 255, 0, 5);
  if (small.empty()) GTEST_SKIP();
  const std::string folder = std::string(ATOLL_SHARED_DIR) + "/models/";
  const Agreement resnet8 = Compare(ReadBytes(FloatModel("mlperf_tiny_resnet8_float.tflite")),
                                    ReadBytes(folder + "mlperf_tiny_resnet8_int8.tflite"), small);
  EXPECT_NEAR(resnet8.logits_db, 25.69, 0.1);
  EXPECT_NEAR(resnet8.same_top1, 0.894, 0.001);
  const Agreement vww = Compare(ReadBytes(FloatModel("mlperf_tiny_vww_96_float.tflite")),
                                ReadBytes(folder + "mlperf_tiny_vww_96_int8.tflite"), large);
  EXPECT_NEAR(vww.logits_db, 12.21, 0.1);
  EXPECT_NEAR(vww.same_top1, 0.955, 0.001);
}

// Files of the converter keep to the specification that the check holds files to.
TEST_F(Anchors, ConvertersFilesKeepToTheSpecification) {
  for (const char* name :
       {"mlperf_tiny_resnet8_int8.tflite", "mlperf_tiny_vww_96_int8.tflite",
        "mlperf_tiny_ad01_int8.tflite", "mlperf_tiny_kws_int8.tflite", "person_detect.tflite",
        "edsr_f32b5_full_qint8.tflite", "movenet_single_pose_lightning_ptq.tflite"}) {
    const Status check =
        CheckPrescriptions(ReadBytes(std::string(ATOLL_SHARED_DIR) + "/models/" + name));
    EXPECT_TRUE(check.ok()) << name << ": " << check.message();
  }
}

struct Bar {
  double logits_db, same_top1;
};

void ExpectBetter(const std::string& name, const SampleList& calibration, const SampleList& inputs,
                  const Bar& bar) {
  if (calibration.empty()) GTEST_SKIP();
  const std::vector<uint8_t> model = ReadBytes(FloatModel(name));
  ListedSamples data(calibration);
  const auto quantized = Quantize(model, &data, {});
  ASSERT_TRUE(quantized.ok()) << quantized.status().message();
  for (const std::string& warning : quantized->report.warnings) {
    EXPECT_EQ(warning.find("first layer's biases"), warning.npos) << warning;
    EXPECT_EQ(warning.find("SQNR"), warning.npos) << warning;
  }
  const Agreement found = Compare(model, quantized->model, inputs);
  std::printf("%s: logits %.2f dB, output %.2f dB, same top-1 %.3f; report %.2f dB\n", name.c_str(),
              found.logits_db, found.output_db, found.same_top1, quantized->report.logits_sqnr_db);
  EXPECT_GE(found.logits_db, bar.logits_db);
  EXPECT_GE(found.same_top1, bar.same_top1);
  const Status check = CheckPrescriptions(quantized->model);
  EXPECT_TRUE(check.ok()) << check.message();
  ExpectSameOnEmulator(quantized->model, inputs);
}

TEST_F(Anchors, Resnet8) {
  ExpectBetter("mlperf_tiny_resnet8_float.tflite", MakeCrops(2, 32, 1, 0, 4),
               MakeCrops(1, 32, 1, 0, 5), {27.7, 0.894});
}

TEST_F(Anchors, VisualWakeWords) {
  ExpectBetter("mlperf_tiny_vww_96_float.tflite", MakeCrops(2, 96, 255, 0, 4),
               MakeCrops(1, 96, 255, 0, 5), {14.2, 0.955});
}

// Its pixels as they are, which it takes divided by 255.
TEST_F(Anchors, VisualWakeWordsWithPixelsOfTheWrongScale) {
  const SampleList crops = MakeCrops(2, 96, 1, 0, 1);
  if (crops.empty()) GTEST_SKIP();
  ListedSamples data(crops);
  const auto quantized =
      Quantize(ReadBytes(FloatModel("mlperf_tiny_vww_96_float.tflite")), &data, {});
  ASSERT_TRUE(quantized.ok());
  EXPECT_TRUE(std::any_of(quantized->report.warnings.begin(), quantized->report.warnings.end(),
                          [](const std::string& warning) {
                            return warning.find("first layer's biases") != warning.npos;
                          }));
}

TEST_F(Anchors, AnomalyDetection) {
  const SampleList windows = ReadSamples(FloatModel("ad01_windows_float32_40x640.bin"), 640);
  ASSERT_EQ(windows.size(), 40u);
  ExpectBetter("mlperf_tiny_ad01_float.tflite", windows, windows, {33.6, 0});
}

// What the options gain or lose on this network, within what other samples would change.
TEST_F(Anchors, AnomalyDetectionWithCompensatedRounding) {
  const SampleList windows = ReadSamples(FloatModel("ad01_windows_float32_40x640.bin"), 640);
  const std::vector<uint8_t> model = ReadBytes(FloatModel("mlperf_tiny_ad01_float.tflite"));
  const auto quality = [&](bool compensate) {
    ListedSamples data(windows);
    const auto quantized =
        Quantize(model, &data, {.bias_correction = false, .compensate_rounding = compensate});
    return quantized.ok() ? quantized->report.logits_sqnr_db : 0.0;
  };
  const double nearest = quality(false), compensated = quality(true);
  std::printf("ad01 rounded to nearest %.2f dB, compensated %.2f dB\n", nearest, compensated);
  EXPECT_GT(compensated, nearest);
}

// int8 weights beside float activations become floats again; the result is a model like others.
TEST_F(Anchors, HalfQuantizedFileIsRepaired) {
  const std::vector<uint8_t> model = ReadBytes(FloatModel("mlperf_tiny_kws_hybrid.tflite"));
  SampleList samples;
  for (int i = 0; i < 16; ++i) {
    std::vector<float> values(490);
    for (size_t k = 0; k < values.size(); ++k) {
      values[k] = 40 * std::sin(static_cast<float>(k * static_cast<size_t>(i + 3)));
    }
    samples.push_back({std::move(values)});
  }
  ListedSamples data(samples);
  const auto quantized = Quantize(model, &data, {});
  ASSERT_TRUE(quantized.ok()) << quantized.status().message();
  EXPECT_GT(quantized->report.logits_sqnr_db, 25);
  EXPECT_TRUE(CheckPrescriptions(quantized->model).ok());
}

TEST_F(Anchors, FaceDetectorIsQuantizedAsAWhole) {
  const std::vector<uint8_t> model = ReadBytes(FloatModel("rfb320_float.tflite"));
  SampleList samples(2, {std::vector<float>(240 * 320 * 3)});
  for (size_t k = 0; k < samples[0][0].size(); ++k) {
    samples[0][0][k] = std::sin(static_cast<float>(k) / 500);
    samples[1][0][k] = std::sin(static_cast<float>(k) / 77);
  }
  ListedSamples data(samples);
  const auto quantized = Quantize(model, &data, {});
  ASSERT_TRUE(quantized.ok()) << quantized.status().message();
  for (const QuantizeReport::Layer& layer : quantized->report.layers) {
    EXPECT_EQ(layer.type, "int8") << layer.name << ": " << layer.reason;
  }
  const Status check = CheckPrescriptions(quantized->model);
  EXPECT_TRUE(check.ok()) << check.message();
  EXPECT_GT(quantized->report.logits_sqnr_db, 15);
}

TEST_F(Anchors, MobileNetV1) {
  ExpectBetter("mobilenet_v1_0.25_224_float.tflite", MakeCrops(2, 224, 127.5f, -1, 3),
               MakeCrops(1, 224, 127.5f, -1, 3), {12.5, 0.6});
}

// Samples that a test makes as they are asked for.
class MadeSamples : public CalibrationData {
 public:
  MadeSamples(size_t count, size_t elements) : count_(count), elements_(elements) {}
  Result<bool> Next(ListedSamples::Sample* inputs) override {
    if (next_ == count_) return false;
    const auto step = static_cast<float>(++next_);
    inputs->assign(1, std::vector<float>(elements_));
    for (size_t k = 0; k < elements_; ++k) {
      (*inputs)[0][k] = std::sin(static_cast<float>(k) / (7 * step));
    }
    return true;
  }
  Status Rewind() override {
    next_ = 0;
    return Status();
  }

 private:
  const size_t count_, elements_;
  size_t next_ = 0;
};

// At most four times the model and the activations of one sample, however many samples there are.
TEST_F(Anchors, Memory) {
  const std::vector<uint8_t> model = ReadBytes(FloatModel("mobilenet_v1_0.25_224_float.tflite"));
  int64_t activations = 0;
  {
    const auto loaded = Model::FromBuffer(model);
    ASSERT_TRUE(loaded.ok());
    for (const Tensor& tensor : (*loaded)->graph().tensors) {
      if (!tensor.is_constant()) activations += tensor.byte_size();
    }
  }
  MadeSamples data(20, 224 * 224 * 3);
  const AllocationMeter meter;
  const auto quantized = Quantize(model, &data, {});
  ASSERT_TRUE(quantized.ok()) << quantized.status().message();
  std::printf("model %zu bytes, activations %lld, peak %lld\n", model.size(),
              static_cast<long long>(activations), static_cast<long long>(meter.peak_bytes()));
  EXPECT_LE(meter.peak_bytes(), 4 * static_cast<int64_t>(model.size()) + activations);
}

}  // namespace
}  // namespace atollrt
