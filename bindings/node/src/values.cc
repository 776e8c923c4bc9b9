#include "values.h"

namespace ballast::node {

std::string text_of(const Napi::Value& value) {
  if (value.IsString()) return value.As<Napi::String>().Utf8Value();
  const auto bytes = value.As<Napi::Uint8Array>();
  return {reinterpret_cast<const char*>(bytes.Data()), bytes.ByteLength()};
}

std::vector<std::string> texts_of(const Napi::Value& array) {
  const auto values = array.As<Napi::Array>();
  std::vector<std::string> texts;
  for (std::uint32_t i = 0; i < values.Length(); ++i) texts.push_back(text_of(values.Get(i)));
  return texts;
}

std::vector<std::pair<std::string, std::string>> pairs_of(const Napi::Value& array) {
  const auto values = array.As<Napi::Array>();
  std::vector<std::pair<std::string, std::string>> pairs;
  for (std::uint32_t i = 0; i < values.Length(); ++i) {
    const auto pair = values.Get(i).As<Napi::Array>();
    pairs.emplace_back(text_of(pair.Get(0U)), text_of(pair.Get(1U)));
  }
  return pairs;
}

Metadata metadata_of(const Napi::Value& array) {
  const auto pairs = pairs_of(array);
  return {pairs.begin(), pairs.end()};
}

std::vector<Lora> loras_of(const Napi::Value& array) {
  const auto values = array.As<Napi::Array>();
  std::vector<Lora> loras;
  for (std::uint32_t i = 0; i < values.Length(); ++i) {
    const auto pair = values.Get(i).As<Napi::Array>();
    loras.push_back({.path = text_of(pair.Get(0U)), .scale = pair.Get(1U).As<Napi::Number>().DoubleValue()});
  }
  return loras;
}

std::optional<DType> dtype_of(const Napi::Value& value) { return value.IsString() ? parse_dtype(text_of(value)) : std::nullopt; }

std::span<std::byte> bytes_of(const Napi::Value& buffer) {
  void* data = nullptr;
  std::size_t size = 0;
  napi_get_arraybuffer_info(buffer.Env(), buffer, &data, &size);
  return {static_cast<std::byte*>(data), size};
}

Napi::Value text_value(Napi::Env env, std::string_view text) { return Napi::String::New(env, text.data(), text.size()); }

Napi::Array texts_value(Napi::Env env, std::span<const std::string> texts) {
  auto made = Napi::Array::New(env, texts.size());
  for (std::uint32_t i = 0; i < texts.size(); ++i) made.Set(i, text_value(env, texts[i]));
  return made;
}

Napi::Array shape_value(Napi::Env env, Shape shape) {
  auto made = Napi::Array::New(env, shape.size());
  for (std::uint32_t i = 0; i < shape.size(); ++i) made.Set(i, count_value(env, shape[i]));
  return made;
}

Napi::Array components_value(Napi::Env env, std::span<const ComponentReport> components) {
  auto made = Napi::Array::New(env, components.size());
  for (std::uint32_t i = 0; i < components.size(); ++i) {
    auto each = Napi::Object::New(env);
    each.Set("name", text_value(env, components[i].name));
    each.Set("className", text_value(env, components[i].class_name));
    each.Set("action", text_value(env, name(components[i].action)));
    each.Set("tensors", count_value(env, components[i].tensors));
    each.Set("bytes", count_value(env, components[i].bytes));
    made.Set(i, each);
  }
  return made;
}

OpenOptions open_options(const Napi::Object& options) {
  OpenOptions open;
  if (const Napi::Value component = options.Get("component"); component.IsString()) open.component = text_of(component);
  if (const Napi::Value variant = options.Get("variant"); variant.IsString()) open.variant = text_of(variant);
  return open;
}

Napi::Value modality_value(Napi::Env env, Modality modality) {
  return modality == Modality::kUnknown ? env.Null() : text_value(env, name(modality));
}

Napi::Array metadata_value(Napi::Env env, const Metadata& metadata) {
  auto made = Napi::Array::New(env, metadata.size());
  std::uint32_t i = 0;
  for (const auto& [key, value] : metadata) {
    auto pair = Napi::Array::New(env, 2);
    pair.Set(0U, text_value(env, key));
    pair.Set(1U, text_value(env, value));
    made.Set(i++, pair);
  }
  return made;
}

Napi::Value config_value(Napi::Env env, const std::optional<ModelConfig>& config) {
  if (!config) return env.Null();
  auto usual = Napi::Object::New(env);
  for (const auto& [key, number] : usual_numbers(*config)) {
    const Napi::Value value =
        std::holds_alternative<bool>(number)
            ? Napi::Value(Napi::Boolean::New(env, std::get<bool>(number)))
            : Napi::Value(Napi::Number::New(env, std::visit([](auto plain) { return static_cast<double>(plain); }, number)));
    usual.Set(std::string(key), value);
  }
  auto made = Napi::Object::New(env);
  made.Set("json", text_value(env, config->json));
  made.Set("usual", usual);
  return made;
}

}  // namespace ballast::node
