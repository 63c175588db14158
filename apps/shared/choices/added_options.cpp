// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/choices/added_options.h"

#include "apps/shared/choices/named_loss.h"

namespace weft {

void add_encoder(CommandLine& line, EncoderChoice& choice) {
  line.add("--encoder", choice.network, "network that turns a picture into features (models/encoders.h)",
           names_of_encoders());
  line.add("--width", choice.width, "channels of the first convolution; features are a multiple of it", {1, 1024});
  line.add("--parts", choice.parts, "rows and columns of the parts of a picture that stages and residual describe",
           {1, 16});
}

void add_method(CommandLine& line, MethodChoice& choice) {
  line.add("--method", choice.name, "what is learnt from two random views of each picture", names_of_methods());
  line.add("--loss", choice.loss, "loss of the two views, for the method pairs", names_of_losses());
  line.add("--temperature", choice.temperature, "temperature, for the losses that have one", {0.001, 100});
  line.add("--teacher-momentum", choice.momentum,
           "what the teacher of moco, byol and dino keeps of its weights in each step", {0, 1});
  line.add("--bank", choice.bank, "keys in the memory bank of moco", {1, 1 << 20});
  line.add("--prototypes", choice.prototypes, "prototypes of swav and dino", {2, 1 << 16});
}

void add_augmentation(CommandLine& line, Augmentation& a) {
  line.add("--min-area", a.min_area, "smallest part of a picture's area that a view shows, enlarged; 1: all of it",
           {0.01, 1});
  line.add("--max-stretch", a.max_stretch, "largest ratio of the sides of that part, relative to the picture", {1, 10});
  line.add("--flip", a.flip, "probability that a view exchanges left and right", {0, 1});
  line.add("--brightness", a.brightness, "values are multiplied by 1 - X to 1 + X", {0, 1});
  line.add("--contrast", a.contrast, "differences from the mean are multiplied by 1 - X to 1 + X", {0, 1});
  line.add("--saturation", a.saturation, "differences from the grey value are multiplied by 1 - X to 1 + X", {0, 1});
  line.add("--hue", a.hue, "colours turn by up to this part of the colour wheel, either way", {0, 0.5});
  line.add("--grayscale", a.grayscale, "probability that a view has no colours", {0, 1});
  line.add("--blur", a.blur, "probability that a view is blurred", {0, 1});
  line.add("--erase", a.erase, "probability that a rectangle of a view is black", {0, 1});
}

void add_graph(CommandLine& line, bool& graph) {
  line.add("--graph", graph,
           "capture a step in a CUDA graph, and launch that for each step, on one card; same weights");
}

}  // namespace weft
