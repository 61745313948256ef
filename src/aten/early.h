// aten/early.h: numbers that are read before all that they do not need. An optimizer counts its steps one by one,
//
//     aten::add_.Tensor(%step0, 1, 1)               aten::add_.Tensor(%step0, 1, 1)
//     magneto::read(%step0, [2])                    aten::add_.Tensor(%step1, 1, 1)
//     aten::add_.Tensor(%weight0, ...)   becomes    magneto::read(%step0, [2])
//     aten::add_.Tensor(%step1, 1, 1)               magneto::read(%step1, [3])
//     magneto::read(%step1, [3])                    aten::add_.Tensor(%weight0, ...)
//     aten::add_.Tensor(%weight1, ...)              aten::add_.Tensor(%weight1, ...)
//
// so that little has happened when a number turns out to be another one, and kernels are few.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace magneto::aten {

/// Of each node: whether it must have run before any number is read that has been read so far, or before this value's
/// numbers are: they need it, or it may not be passed. Inputs are taken for tensors in memory of their own.
std::vector<bool> needed_by_reads(const graph::Graph& graph, graph::ValueId value = {});

/// Nothing that this value needs is needed by a number that is read before it, or nothing of it has run since then:
/// no loop that goes on until a number is small enough.
bool is_apart_from_reads(const graph::Graph& graph, graph::ValueId value);

/// What may not share memory for that, by the indices of inputs.
struct Apart {
  struct Access {
    size_t input = 0;
    bool writes = false;
  };
  std::vector<Access> early, late;
  bool holds(std::span<const at::Tensor> inputs) const;
};
struct EarlyReads {
  graph::Graph graph;
  Apart apart;
};
/// Nothing: they stand there already, or one of them is a size. `read_at` says of each symbol how many reads it needs.
std::optional<EarlyReads> with_early_reads(const graph::Graph& graph, std::span<const size_t> read_at);

}  // namespace magneto::aten
