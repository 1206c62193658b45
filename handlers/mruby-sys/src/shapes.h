/* A cache of Hashes by their keys.
 *
 * Most requests have the same env keys as an earlier one. Inserting twenty keys into a Hash costs more than the rest of a
 * small handler; copying a Hash that has them and replacing its values is cheaper.
 *
 * Contract:
 * 1. The result is the Hash that inserting the keys one by one would make, in the same order.
 * 2. A shape is a list of numbers of interned keys. Envs with other keys are made without the cache.
 * 3. A shape has keys and template values only, no value of a request.
 */
#ifndef FIREBRICK_SHAPES_H
#define FIREBRICK_SHAPES_H

#include "shim.h"

#include <mruby.h>

#define SHAPES 32
#define SHAPE_KEYS 48

typedef struct {
  uint32_t count; /* 0: none */
  uint32_t keys[SHAPE_KEYS];
  uint32_t places[SHAPE_KEYS]; /* index of each key's value among the Hash's entries */
} shape;

typedef struct {
  mrb_value hashes; /* one for each shape, in an Array that the collector knows */
  shape shapes[SHAPES];
} shapes;

/* The shape of these fields; NULL if it is not cached. */
const shape *shapes_find(const shapes *known, const fb_field *fields, size_t count);

/* A copy of a shape's Hash. The caller puts all values in, protects them from the collector meanwhile, and calls
 * `shape_filled`. */
mrb_value shapes_copy(mrb_state *mrb, const shapes *known, const shape *of);
void shape_put(mrb_value hash, uint32_t place, mrb_value value);
void shape_filled(mrb_state *mrb, mrb_value hash);

/* Caches the shape of a Hash that was made of these fields without the cache. */
void shapes_learn(mrb_state *mrb, shapes *known, const fb_field *fields, size_t count, mrb_value hash,
                  mrb_value (*key)(mrb_state *, uint32_t number));

#endif
