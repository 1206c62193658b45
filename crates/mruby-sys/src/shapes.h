/* Hashes whose keys are known from the last time.
 *
 * Why: most requests have the keys of the one before. Finding a place in a Hash for each of twenty keys costs more than
 * everything else that a handler without much to do takes; copying a Hash that has them all, and putting the values where they
 * belong, does not.
 *
 * Contract:
 * 1. What comes out is the Hash that setting one key after the other would have made, in the same order.
 * 2. Only keys that are interned count: a shape is a list of their numbers. Everything else takes the long way.
 * 3. A shape keeps keys and what is the same for all, no value of any request.
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
  uint32_t places[SHAPE_KEYS]; /* of each key's value among the Hash's entries */
} shape;

typedef struct {
  mrb_value hashes; /* of the shapes; an Array that the collector knows */
  shape shapes[SHAPES];
} shapes;

/* The shape of these fields if it is known, else NULL. */
const shape *shapes_find(const shapes *known, const fb_field *fields, size_t count);

/* A Hash of a shape, whose values are still to be put in. Whoever does must keep them from the collector until
 * `shape_filled`. */
mrb_value shapes_copy(mrb_state *mrb, const shapes *known, const shape *of);
void shape_put(mrb_value hash, uint32_t place, mrb_value value);
void shape_filled(mrb_state *mrb, mrb_value hash);

/* Learns the shape of a Hash that was made of these fields the long way. */
void shapes_learn(mrb_state *mrb, shapes *known, const fb_field *fields, size_t count, mrb_value hash,
                  mrb_value (*key)(mrb_state *, uint32_t number));

#endif
