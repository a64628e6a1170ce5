// The Python face of the native kernels: foredraft._native.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "blocks.h"
#include "program.h"
#include "sampling.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace foredraft {
namespace {

using BytesIn = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatsIn = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MatrixIn = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using IntsIn = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Cache = nb::ndarray<uint16_t, nb::ndim<5>, nb::c_contig, nb::device::cpu>;
using FloatsOut = nb::ndarray<nb::numpy, const float, nb::ndim<2>>;

void check_size(const BytesIn& data, Format format, size_t outputs, size_t inputs) {
  const size_t block = static_cast<size_t>(info(format).values_per_block);
  const bool whole = inputs != 0 && inputs % block == 0 && inputs / block <= data.size();
  const size_t row = whole ? row_bytes(format, inputs) : 0;
  if (row == 0 || data.size() % row != 0 || data.size() / row != outputs) {  // no product that could overflow
    throw std::invalid_argument("the data of a weight does not have the size its shape asks for");
  }
}

std::shared_ptr<Weight> pack(const std::string& format_name, size_t outputs, size_t inputs, const BytesIn& data,
                             ThreadPool& pool, std::shared_ptr<WeightMemory> memory) {
  const Format format = format_from_name(format_name);
  check_size(data, format, outputs, inputs);
  const uint8_t* const bytes = data.data();
  nb::gil_scoped_release unlocked;
  return std::make_shared<Weight>(format, outputs, inputs, bytes, pool, std::move(memory));
}

std::vector<float> to_vector(const FloatsIn& a) { return std::vector<float>(a.data(), a.data() + a.size()); }

// Keeps the array's owner alive for as long as the program reads its bytes.
std::shared_ptr<const uint8_t> borrow(BytesIn data) {
  const uint8_t* const bytes = data.data();
  return std::shared_ptr<const uint8_t>(bytes, [data = std::move(data)](const uint8_t*) mutable {
    nb::gil_scoped_acquire locked;
    data = BytesIn();
  });
}

int embed(Program& program, const std::string& format_name, size_t vocabulary, size_t width, const BytesIn& data,
          float scale) {
  const Format format = format_from_name(format_name);
  check_size(data, format, vocabulary, width);
  return program.embed(format, borrow(data), vocabulary, width, scale);
}

using LinearIn = std::tuple<std::shared_ptr<Weight>, std::optional<FloatsIn>, int>;

std::vector<int> linear(Program& program, int input, const std::vector<LinearIn>& matrices, bool precise) {
  std::vector<Linear> list;
  for (const auto& [weight, bias, residual] : matrices) {
    list.push_back({weight, bias ? to_vector(*bias) : std::vector<float>(), residual});
  }
  return program.linear(input, std::move(list), precise);
}

// Keys are [layers][blocks][heads][width][16], values [layers][blocks][heads][16][width].
void check_pair(const Cache& keys, const Cache& values) {
  bool good = keys.shape(4) == kBlockPositions && values.shape(3) == keys.shape(4) && values.shape(4) == keys.shape(3);
  for (size_t i = 0; i < 3; ++i) good = good && keys.shape(i) == values.shape(i);
  if (!good) throw std::invalid_argument("the shapes of the cache's keys and values do not fit together");
}

void run(Program& program, const IntsIn& tokens, const IntsIn& positions, const IntsIn& requests, const IntsIn& slots,
         const IntsIn& prefix_lengths, const IntsIn& tail_offsets, const IntsIn& tail_slots,
         const IntsIn& table_offsets, const IntsIn& block_tables, const IntsIn& selected_rows, Cache keys,
         Cache values) {
  Batch batch;
  batch.num_rows = tokens.size();
  const auto per_row = {&positions, &requests, &slots, &prefix_lengths};
  for (const IntsIn* array : per_row) {
    if (array->size() != batch.num_rows) throw std::invalid_argument("a batch needs one entry per row in each array");
  }
  if (tail_offsets.size() != batch.num_rows + 1 || table_offsets.size() < 2) {
    throw std::invalid_argument("the offsets of a batch have the wrong size");
  }
  const auto check_offsets = [](const IntsIn& offsets, size_t end) {
    int32_t last = 0;
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (offsets.data()[i] < last) throw std::invalid_argument("the offsets of a batch must not fall");
      last = offsets.data()[i];
    }
    if (static_cast<size_t>(last) > end) throw std::invalid_argument("the offsets of a batch pass the end");
  };
  check_offsets(tail_offsets, tail_slots.size());
  check_offsets(table_offsets, block_tables.size());
  for (size_t r = 0; r < batch.num_rows; ++r) {
    if (requests.data()[r] < 0 || static_cast<size_t>(requests.data()[r]) + 1 >= table_offsets.size()) {
      throw std::invalid_argument("a row names a request that is not in the batch");
    }
  }
  batch.tokens = tokens.data();
  batch.positions = positions.data();
  batch.requests = requests.data();
  batch.slots = slots.data();
  batch.prefix_lengths = prefix_lengths.data();
  batch.tail_offsets = tail_offsets.data();
  batch.tail_slots = tail_slots.data();
  batch.table_offsets = table_offsets.data();
  batch.block_tables = block_tables.data();
  batch.selected_rows = selected_rows.data();
  batch.num_selected = selected_rows.size();
  batch.keys = keys.data();
  batch.values = values.data();
  batch.num_blocks = keys.shape(1);
  program.check_cache(keys.shape(0), keys.shape(2), keys.shape(3) * keys.shape(4));
  check_pair(keys, values);
  nb::gil_scoped_release unlocked;
  program.run(batch);
}

FloatsOut result(const Program& program, int buffer) {
  // The array shares the memory, so that it stays readable when a later, larger run moves to another.
  using Shared = std::shared_ptr<const float[]>;
  auto shared = std::make_unique<Shared>(program.result(buffer));
  const float* const data = shared->get();
  const nb::capsule owner(shared.get(), [](void* p) noexcept { delete static_cast<Shared*>(p); });
  shared.release();
  return FloatsOut(data, {program.result_rows(buffer), program.width(buffer)}, owner);
}

SamplingRule rule(double temperature, int64_t top_k, double top_p, double min_p, uint64_t seed, uint32_t choice,
                  uint32_t position) {
  return {temperature, top_k, top_p, min_p, seed, choice, position};
}

// Moves keys and values of all layers from slot to slot, in the order given.
void move_slots(Cache keys, Cache values, const IntsIn& from, const IntsIn& to) {
  const size_t layers = keys.shape(0), blocks = keys.shape(1), heads = keys.shape(2);
  const size_t width = keys.shape(3), lanes = keys.shape(4);
  check_pair(keys, values);
  if (from.size() != to.size()) throw std::invalid_argument("move_slots: source and target differ in size");
  for (size_t i = 0; i < from.size(); ++i) {
    const int32_t most = static_cast<int32_t>(blocks * lanes);
    const int32_t source = from.data()[i], target = to.data()[i];
    if (source < 0 || source >= most || target < 0 || target >= most) {
      throw std::invalid_argument("move_slots: a slot is outside the cache");
    }
    for (size_t head = 0; head < layers * heads; ++head) {
      const size_t layer = head / heads, h = head % heads;
      const auto base = [&](int32_t slot) {
        return ((layer * blocks + static_cast<size_t>(slot) / lanes) * heads + h) * width * lanes;
      };
      uint16_t* const key_from = keys.data() + base(source) + static_cast<size_t>(source) % lanes;
      uint16_t* const key_to = keys.data() + base(target) + static_cast<size_t>(target) % lanes;
      for (size_t e = 0; e < width; ++e) key_to[e * lanes] = key_from[e * lanes];
      std::memmove(values.data() + base(target) + static_cast<size_t>(target) % lanes * width,
                   values.data() + base(source) + static_cast<size_t>(source) % lanes * width, width * sizeof(uint16_t));
    }
  }
}

void dequantize(const std::string& format_name, const BytesIn& data, size_t inputs,
                nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu> out) {
  const Format format = format_from_name(format_name);
  check_size(data, format, out.shape(0), inputs);
  if (out.shape(1) != inputs) throw std::invalid_argument("dequantize: the output has another width");
  for (size_t r = 0; r < out.shape(0); ++r) {
    dequantize_row(format, data.data() + r * row_bytes(format, inputs), inputs, out.data() + r * inputs);
  }
}

}  // namespace
}  // namespace foredraft

// noconvert: a copy made to convert an array would swallow what is written to it, or cut ids down to 32 bits.
NB_MODULE(_native, m) {
  using namespace foredraft;
  nb::set_leak_warnings(false);  // a model may well live until the interpreter ends
  nb::class_<ThreadPool>(m, "ThreadPool")
      .def(nb::init<int>(), "num_threads"_a)
      .def_prop_ro("num_threads", &ThreadPool::num_threads);
  nb::class_<Kernels>(m, "Kernels").def_prop_ro("name", [](const Kernels& k) { return k.name; });
  m.def("select_kernels", [](const std::string& isa) { return &select_kernels(isa); }, "isa"_a,
        nb::rv_policy::reference);
  m.def("available_kernels", &available_kernels);
  nb::class_<WeightMemory>(m, "WeightMemory").def(nb::init<>());
  nb::class_<Weight>(m, "Weight")
      .def_prop_ro("num_bytes", &Weight::num_bytes)
      .def_prop_ro("outputs", &Weight::outputs)
      .def_prop_ro("inputs", &Weight::inputs);
  m.def("pack", &pack, "format"_a, "outputs"_a, "inputs"_a, nb::arg("data").noconvert(), "pool"_a,
        "memory"_a.none() = nb::none());
  m.def("dequantize", &foredraft::dequantize, "format"_a, nb::arg("data").noconvert(), "inputs"_a,
        nb::arg("out").noconvert());
  m.def("move_slots", &move_slots, nb::arg("keys").noconvert(), nb::arg("values").noconvert(),
        nb::arg("source").noconvert(), nb::arg("target").noconvert());

  nb::class_<Program>(m, "Program")
      .def("__init__", [](Program* self, std::shared_ptr<ThreadPool> pool, const Kernels& kernels) {
        new (self) Program(std::move(pool), kernels);
      }, "pool"_a, "kernels"_a)
      .def("embed", &embed, "format"_a, "vocabulary"_a, "width"_a, nb::arg("data").noconvert(), "scale"_a)
      .def("rms_norm", [](Program& p, int input, const FloatsIn& weight, float epsilon, int residual) {
        return p.rms_norm(input, to_vector(weight), epsilon, residual);
      }, "input"_a, "weight"_a, "epsilon"_a, "residual"_a)
      .def("linear", &linear, "input"_a, "matrices"_a, "precise"_a = false)
      .def("add_rope_table", [](Program& p, const FloatsIn& frequencies, float magnitude) {
        return p.add_rope_table(to_vector(frequencies), magnitude);
      }, "inverse_frequencies"_a, "magnitude"_a)
      .def("rope", [](Program& p, int buffer, int num_heads, int table, bool interleaved) {
        p.rope(buffer, num_heads, table, interleaved ? RopeStyle::Interleaved : RopeStyle::Neox);
      }, "buffer"_a, "num_heads"_a, "table"_a, "interleaved"_a)
      .def("attention", [](Program& p, int queries, int keys, int values, int layer, int num_heads, int num_kv_heads,
                           int head_width, int window, float scale, float softcap) {
        return p.attention(queries, keys, values,
                           {layer, num_heads, num_kv_heads, head_width, window, scale, softcap});
      }, "queries"_a, "keys"_a, "values"_a, "layer"_a, "num_heads"_a, "num_kv_heads"_a, "head_width"_a, "window"_a,
         "scale"_a, "softcap"_a)
      .def("gated", [](Program& p, int gate, int up, bool gelu) {
        return p.gated(gate, up, gelu ? Activation::GeluTanh : Activation::Silu);
      }, "gate"_a, "up"_a, "gelu"_a)
      .def("select", &Program::select, "input"_a)
      .def("keep", &Program::keep, "buffer"_a)
      .def("finish", &Program::finish)
      .def("run", &run, nb::arg("tokens").noconvert(), nb::arg("positions").noconvert(),
           nb::arg("requests").noconvert(), nb::arg("slots").noconvert(), nb::arg("prefix_lengths").noconvert(),
           nb::arg("tail_offsets").noconvert(), nb::arg("tail_slots").noconvert(),
           nb::arg("table_offsets").noconvert(), nb::arg("block_tables").noconvert(),
           nb::arg("selected_rows").noconvert(), nb::arg("keys").noconvert(), nb::arg("values").noconvert())
      .def("result", &result, "buffer"_a)
      .def("set_profiling", &Program::set_profiling, "on"_a)
      .def("profile", &Program::profile);

  m.def("pick", [](const Kernels& kernels, const FloatsIn& logits, double temperature, int64_t top_k, double top_p,
                   double min_p, uint64_t seed, uint32_t choice, uint32_t position, size_t count,
                   const std::optional<IntsIn>& token_ids) {
    if (token_ids && token_ids->size() != logits.size()) {
      throw std::invalid_argument("pick: one token id is needed for each logit");
    }
    return pick(kernels, logits.data(), logits.size(), rule(temperature, top_k, top_p, min_p, seed, choice, position),
                count, token_ids ? token_ids->data() : nullptr);
  }, "kernels"_a, "logits"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "seed"_a, "choice"_a, "position"_a,
     "count"_a, "token_ids"_a.none() = nb::none());
  m.def("gumbel", &gumbel, "seed"_a, "choice"_a, "position"_a, "token"_a);
  m.def("token_probability", [](const Kernels& kernels, const FloatsIn& logits, double temperature, size_t token) {
    if (token >= logits.size()) throw std::invalid_argument("token_probability: no such token");
    return token_probability(kernels, logits.data(), logits.size(), temperature, token);
  }, "kernels"_a, "logits"_a, "temperature"_a, "token"_a);
}
