// SPDX-License-Identifier: Apache-2.0
#include "serve/oip/infer_json.h"

#include <algorithm>
#include <utility>

#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

using atollrt::Format;
using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;
using atollrt::Unsupported;
using Json = nlohmann::json;

constexpr size_t kDimensions = 32;

// One value of JSON that is no object or array.
struct Scalar {
  enum class Kind { kNull, kBool, kInteger, kUnsigned, kReal, kText };
  Kind kind = Kind::kNull;
  bool truth = false;
  int64_t integer = 0;
  uint64_t natural = 0;
  double real = 0;
  std::string* text = nullptr;

  // What a parameter that counts something is.
  std::optional<uint64_t> AsCount() const {
    if (kind == Kind::kUnsigned) return natural;
    return std::nullopt;
  }
};

void Add(const Scalar& scalar, JsonValues* values) {
  if (scalar.kind == Scalar::Kind::kReal && !values->is_real) {
    values->is_real = true;
    values->reals.reserve(values->integers.capacity());
    for (const int64_t value : values->integers)
      values->reals.push_back(static_cast<double>(value));
    values->integers = {};
  }
  int64_t integer = scalar.integer;
  if (scalar.kind == Scalar::Kind::kBool) {
    values->has_bool = true;
    integer = scalar.truth ? 1 : 0;
  }
  values->has_negative =
      values->has_negative || (scalar.kind == Scalar::Kind::kInteger && integer < 0);
  if (scalar.kind == Scalar::Kind::kUnsigned) {
    integer = static_cast<int64_t>(scalar.natural);
    values->has_large = values->has_large || scalar.natural > INT64_MAX;
  }
  if (values->is_real) {
    values->reals.push_back(scalar.kind == Scalar::Kind::kReal ? scalar.real
                                                               : static_cast<double>(integer));
  } else {
    values->integers.push_back(integer);
  }
}

class InferReader {
 public:
  InferReader(const ModelInfo& model, InferBody* body) : model_(model), body_(body) {
    for (const TensorInfo& info : model.inputs) {
      max_values_ = std::max(max_values_, info.elements());
    }
  }

  bool null() { return OnScalar({.kind = Scalar::Kind::kNull}); }
  bool boolean(bool value) { return OnScalar({.kind = Scalar::Kind::kBool, .truth = value}); }
  bool number_integer(Json::number_integer_t value) {
    return OnScalar({.kind = Scalar::Kind::kInteger, .integer = value});
  }
  bool number_unsigned(Json::number_unsigned_t value) {
    return OnScalar({.kind = Scalar::Kind::kUnsigned, .natural = value});
  }
  bool number_float(Json::number_float_t value, const std::string&) {
    return OnScalar({.kind = Scalar::Kind::kReal, .real = value});
  }
  bool string(std::string& value) {
    return OnScalar({.kind = Scalar::Kind::kText, .text = &value});
  }
  bool binary(Json::binary_t&) { return false; }
  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }
  bool start_object(size_t) { return Enter(/*is_object=*/true); }
  bool end_object() { return Leave(); }
  bool start_array(size_t) { return Enter(/*is_object=*/false); }
  bool end_array() { return Leave(); }
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    return Fail(Format("the request is no JSON: byte %zu does not belong there", position));
  }

  // What was read, or why it cannot be.
  InferJson& json() { return json_; }
  Status failure() const {
    const char* const what = failure_.empty() ? "it is no JSON" : failure_.c_str();
    return unsupported_ ? Unsupported("%s", what) : InvalidArgument("%s", what);
  }

 private:
  enum class Place {
    kTop,
    kRequest,
    kParameters,
    kInputs,
    kInput,
    kInputParameters,
    kShape,
    kData,
    kOutputs,
    kOutput,
    kOutputParameters,
    kIgnored,
  };

  bool Fail(std::string sentence) {
    if (failure_.empty()) failure_ = std::move(sentence);
    return false;
  }
  Place place() const { return places_.empty() ? Place::kTop : places_.back(); }

  bool Enter(bool is_object) {
    if (places_.size() >= static_cast<size_t>(kMaxJsonDepth)) {
      return Fail(Format("the request's JSON is nested more than %d deep", kMaxJsonDepth));
    }
    const auto go = [&](Place next, bool wants_object, const char* what) {
      if (wants_object != is_object) {
        return Fail(std::string(what) + " is no " + (wants_object ? "object" : "array"));
      }
      places_.push_back(next);
      return true;
    };
    const auto ignore = [&] { return places_.push_back(Place::kIgnored), true; };
    switch (place()) {
      case Place::kTop:
        return go(Place::kRequest, true, "the request");
      case Place::kRequest:
        if (key_ == "inputs") {
          json_.has_inputs = true;
          return go(Place::kInputs, false, "\"inputs\"");
        }
        if (key_ == "outputs") return go(Place::kOutputs, false, "\"outputs\"");
        if (key_ == "parameters") return go(Place::kParameters, true, "\"parameters\"");
        if (key_ == "id") return Fail("\"id\" is no text");
        return ignore();
      case Place::kInputs:
        if (json_.inputs.size() >= model_.inputs.size()) {
          return Fail(Format("the request has more than the %zu inputs of model '%s'",
                             model_.inputs.size(), model_.name.c_str()));
        }
        json_.inputs.emplace_back();
        return go(Place::kInput, true, "an element of \"inputs\"");
      case Place::kInput:
        if (key_ == "shape") return go(Place::kShape, false, "\"shape\"");
        if (key_ == "parameters") {
          return go(Place::kInputParameters, true, "\"parameters\" of an input");
        }
        if (key_ == "data") {
          if (json_.inputs.back().has_data) return Fail("an input has \"data\" twice");
          json_.inputs.back().has_data = true;
          return go(Place::kData, false, "\"data\"");
        }
        if (key_ == "name" || key_ == "datatype") return Fail("\"" + key_ + "\" is no text");
        return ignore();
      case Place::kData:
        return go(Place::kData, false, "an element of \"data\"");
      case Place::kOutputs:
        if (json_.outputs.size() >= model_.outputs.size()) {
          return Fail(Format("the request wants more than the %zu outputs of model '%s'",
                             model_.outputs.size(), model_.name.c_str()));
        }
        json_.outputs.emplace_back();
        return go(Place::kOutput, true, "an element of \"outputs\"");
      case Place::kOutput:
        if (key_ == "parameters") {
          return go(Place::kOutputParameters, true, "\"parameters\" of an output");
        }
        if (key_ == "name") return Fail("\"name\" of an output is no text");
        return ignore();
      case Place::kShape:
        return Fail("an element of \"shape\" is no whole number");
      case Place::kParameters:
      case Place::kInputParameters:
      case Place::kOutputParameters:
        return Fail("parameter '" + Shown(key_) + "' is an object or an array");
      case Place::kIgnored:
        return ignore();
    }
    return false;
  }

  bool Leave() {
    places_.pop_back();
    return true;
  }

  bool OnScalar(const Scalar& scalar) {
    const bool is_text = scalar.kind == Scalar::Kind::kText;
    switch (place()) {
      case Place::kTop:
        return Fail("the request is no object");
      case Place::kRequest:
        if (key_ == "id") {
          if (!is_text) return Fail("\"id\" is no text");
          body_->id = std::move(*scalar.text);
        } else if (key_ == "inputs" || key_ == "outputs") {
          return Fail("\"" + key_ + "\" is no array");
        } else if (key_ == "parameters" && scalar.kind != Scalar::Kind::kNull) {
          return Fail("\"parameters\" is no object");
        }
        return true;
      case Place::kParameters:
        return OnParameter(scalar);
      case Place::kInputs:
      case Place::kOutputs:
        return Fail("an input or output is no object");
      case Place::kInput: {
        JsonInput& input = json_.inputs.back();
        if (key_ == "name" || key_ == "datatype") {
          if (!is_text) return Fail("\"" + key_ + "\" of an input is no text");
          (key_ == "name" ? input.name : input.datatype) = std::move(*scalar.text);
          (key_ == "name" ? input.has_name : input.has_datatype) = true;
        } else if (key_ == "shape" || key_ == "data") {
          return Fail("\"" + key_ + "\" of an input is no array");
        }
        return true;
      }
      case Place::kInputParameters:
        return OnInputParameter(scalar);
      case Place::kShape: {
        JsonInput& input = json_.inputs.back();
        input.has_shape = true;
        if (scalar.kind != Scalar::Kind::kUnsigned || scalar.natural > INT64_MAX) {
          return Fail("an element of \"shape\" is no whole number from 0");
        }
        if (input.shape.size() >= kDimensions) {
          return Fail(Format("\"shape\" has more than %zu elements", kDimensions));
        }
        input.shape.push_back(static_cast<int64_t>(scalar.natural));
        return true;
      }
      case Place::kData: {
        JsonValues& values = json_.inputs.back().values;
        if (is_text || scalar.kind == Scalar::Kind::kNull) {
          return Fail("an element of \"data\" is no number, true or false");
        }
        if (values.size() >= max_values_) {
          return Fail(
              Format("\"data\" of input '%s' has more than %zu elements, which no input of "
                     "model '%s' has",
                     Shown(json_.inputs.back().name).c_str(), max_values_, model_.name.c_str()));
        }
        Add(scalar, &values);
        return true;
      }
      case Place::kOutput:
        if (key_ == "name") {
          if (!is_text) return Fail("\"name\" of an output is no text");
          json_.outputs.back().wanted.name = std::move(*scalar.text);
          json_.outputs.back().has_name = true;
        }
        return true;
      case Place::kOutputParameters:
        return OnOutputParameter(scalar);
      case Place::kIgnored:
        return true;
    }
    return false;
  }

  bool FailCount() { return Fail("parameter '" + Shown(key_) + "' is no whole number from 0"); }
  bool FailBool() { return Fail("parameter '" + Shown(key_) + "' is not true or false"); }

  bool OnParameter(const Scalar& scalar) {
    const bool is_bool = scalar.kind == Scalar::Kind::kBool;
    const std::optional<uint64_t> count = scalar.AsCount();
    if (key_ == "priority" || key_ == "timeout") {
      if (!count) return FailCount();
      (key_ == "priority" ? body_->priority : body_->timeout_us) = *count;
    } else if (key_ == "binary_data_output") {
      if (!is_bool) return FailBool();
      body_->binary = scalar.truth;
    } else if (key_ == "atoll_quantized") {
      if (!is_bool) return FailBool();
      body_->real_values = !scalar.truth;
    } else if (key_.starts_with("sequence_")) {
      const bool is_none = (count && *count == 0) || (is_bool && !scalar.truth) ||
                           (scalar.kind == Scalar::Kind::kText && scalar.text->empty());
      if (!is_none) {
        unsupported_ = true;
        return Fail("sequences are not served: each request is by itself");
      }
    }
    return true;
  }

  bool OnRegion(const Scalar& scalar, JsonRegion* region, bool* known) {
    *known = true;
    if (key_ == "shared_memory_region") {
      if (scalar.kind != Scalar::Kind::kText) {
        return Fail("parameter 'shared_memory_region' is no text");
      }
      region->name = std::move(*scalar.text);
    } else if (key_ == "shared_memory_offset" || key_ == "shared_memory_byte_size") {
      if (!scalar.AsCount()) return FailCount();
      (key_ == "shared_memory_offset" ? region->offset : region->bytes) = scalar.AsCount();
    } else {
      *known = false;
    }
    return true;
  }

  bool OnInputParameter(const Scalar& scalar) {
    bool known = false;
    JsonInput& input = json_.inputs.back();
    if (!OnRegion(scalar, &input.region, &known)) return false;
    if (known) return true;
    if (key_ == "binary_data_size") {
      input.binary_bytes = scalar.AsCount();
      if (!input.binary_bytes) return FailCount();
    }
    return true;
  }

  bool OnOutputParameter(const Scalar& scalar) {
    bool known = false;
    JsonOutput& output = json_.outputs.back();
    if (!OnRegion(scalar, &output.region, &known)) return false;
    if (known) return true;
    if (key_ == "binary_data") {
      if (scalar.kind != Scalar::Kind::kBool) return FailBool();
      output.wanted.binary = scalar.truth;
    } else if (key_ == "classification") {
      const auto count = scalar.AsCount();
      if (!count) return FailCount();
      output.wanted.classes = static_cast<uint32_t>(std::min<uint64_t>(*count, 1 << 20));
    }
    return true;
  }

  const ModelInfo& model_;
  InferBody* const body_;
  size_t max_values_ = 0;
  std::vector<Place> places_;
  std::string key_;
  InferJson json_;
  bool unsupported_ = false;
  std::string failure_;
};

}  // namespace

Result<InferJson> ReadInferJson(std::string_view json, const ModelInfo& model, InferBody* body) {
  InferReader reader(model, body);
  if (!Json::sax_parse(json.begin(), json.end(), &reader)) return reader.failure();
  return std::move(reader.json());
}

}  // namespace atollserve
