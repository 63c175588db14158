// SPDX-License-Identifier: Apache-2.0
#pragma once
// Options of networks, views, methods and steps, which a program adds if it has them.
#include "apps/shared/choices/method.h"
#include "weft/data/augment.h"
#include "weft/models/encoders.h"

namespace weft {

void add_encoder(CommandLine& line, EncoderChoice& choice);
void add_method(CommandLine& line, MethodChoice& choice);
void add_augmentation(CommandLine& line, Augmentation& augmentation);
void add_graph(CommandLine& line, bool& graph);

}  // namespace weft
