/* For the registers of a thread that was interrupted. */
#define _GNU_SOURCE

#include "shim.h"

#include <mruby.h>
#include <mruby/array.h>
#include <mruby/class.h>
#include <mruby/compile.h>
#include <mruby/error.h>
#include <mruby/hash.h>
#include <mruby/proc.h>
#include <mruby/string.h>
#include <mruby/value.h>
#include <mruby/variable.h>
#include <mruby/version.h>

#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#if MRUBY_RELEASE_NO < 30100 || MRUBY_RELEASE_NO >= 40000
#error "mruby 3.1 to 3.4 is needed"
#endif

/* Deeper values are refused on the way out and on the way in. */
#define MAX_DEPTH 100

typedef struct {
  uint8_t *data;
  size_t length, capacity;
} buffer;

/* Before each piece of memory that mruby has, so that a VM that cannot be closed any more can still be given back. */
typedef struct block {
  struct block *next, *previous;
} block;

struct fb_vm {
  mrb_state *mrb;
  block blocks;           /* head of the ring of all memory */
  pthread_t thread;       /* whose VM it is */
  atomic_uint serial;     /* of the step that runs, or ran last */
  atomic_uint unwanted;   /* the step that is to be stopped */
  sigjmp_buf leave;       /* out of the step that runs */
  fb_config config;
  size_t first_allocation;
  size_t heap;         /* bytes that mruby holds */
  size_t ceiling;      /* what `heap` may reach during this resume */
  atomic_int interrupted; /* how many allocations are still to fail; with the hook: whether to raise */
  buffer out;
  mrb_value roots;     /* one registered Array: fibers, interned Strings, what else must stay */
  mrb_value fibers;    /* slot => Fiber */
  mrb_value interned;
  mrb_value marker;    /* what a task yields when it waits */
  mrb_value module;    /* Rt */
  struct RClass *interrupted_class;
};

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static size_t size_of(block *b) { return b ? malloc_usable_size(b) : 0; }

static void link_block(fb_vm *vm, block *b) {
  b->next = vm->blocks.next;
  b->previous = &vm->blocks;
  b->next->previous = b;
  vm->blocks.next = b;
}

static void unlink_block(block *b) {
  b->next->previous = b->previous;
  b->previous->next = b->next;
}

static void *allocate(mrb_state *mrb, void *old, size_t size, void *user) {
  fb_vm *vm = user;
  block *b = old ? (block *)old - 1 : NULL;
  (void)mrb;
  size_t before = size_of(b);
  if (size == 0) {
    if (!b) return NULL;
    vm->heap -= before;
    unlink_block(b);
    free(b);
    return NULL;
  }
  if (vm->first_allocation == 0) vm->first_allocation = size;
  if (size > SIZE_MAX - sizeof(block)) return NULL;
  size += sizeof(block);
  if (size > before) {
    if (vm->heap + (size - before) > vm->ceiling) return NULL;
#ifndef MRB_USE_DEBUG_HOOK
    /* Without the hook this is the only place where code that runs away can be interrupted. mruby tries again after a
     * collection, so it takes two failures to raise; not more, so that what rescues has memory to do so. */
    if (atomic_load_explicit(&vm->interrupted, memory_order_relaxed) > 0) {
      atomic_fetch_sub_explicit(&vm->interrupted, 1, memory_order_relaxed);
      return NULL;
    }
#endif
  }
  if (b) unlink_block(b);
  block *new = realloc(b, size);
  if (!new) {
    if (b) link_block(vm, b);
    return NULL;
  }
  link_block(vm, new);
  vm->heap = vm->heap - before + size_of(new);
  return new + 1;
}

static void task_begins(fb_vm *vm) {
  size_t room = vm->config.heap_limit > vm->heap ? vm->config.heap_limit - vm->heap : 0;
  vm->ceiling = vm->heap + (room < vm->config.task_limit ? room : vm->config.task_limit);
  atomic_store_explicit(&vm->interrupted, 0, memory_order_relaxed);
}

/* The driver may always finish what it does: refusing memory here would break the VM, not the task. */
static void driver_begins(fb_vm *vm) {
  vm->ceiling = SIZE_MAX;
  atomic_store_explicit(&vm->interrupted, 0, memory_order_relaxed);
}

#ifdef MRB_USE_DEBUG_HOOK
static void hook(mrb_state *mrb, const struct mrb_irep *irep, const mrb_code *pc, mrb_value *regs) {
  fb_vm *vm = mrb->ud;
  (void)irep;
  (void)pc;
  (void)regs;
  if (atomic_exchange_explicit(&vm->interrupted, 0, memory_order_relaxed)) {
    mrb_raise(mrb, vm->interrupted_class, "the handler ran for too long without waiting");
  }
}
#endif

/* ---- out of Ruby ----------------------------------------------------------------------------------------------- */

static void put(mrb_state *mrb, buffer *to, const void *data, size_t length) {
  if (to->capacity - to->length < length) {
    size_t capacity = to->capacity ? to->capacity : 1024;
    while (capacity - to->length < length) capacity *= 2;
    uint8_t *bigger = realloc(to->data, capacity);
    if (!bigger) mrb_raise(mrb, mrb_exc_get_id(mrb, mrb_intern_lit(mrb, "NoMemoryError")), "no memory for a value");
    to->data = bigger;
    to->capacity = capacity;
  }
  if (length) memcpy(to->data + to->length, data, length);
  to->length += length;
}

static void put_tag(mrb_state *mrb, buffer *to, char tag) { put(mrb, to, &tag, 1); }

static void put_counted(mrb_state *mrb, buffer *to, char tag, size_t count) {
  if (count > UINT32_MAX) mrb_raise(mrb, E_ARGUMENT_ERROR, "value is too large");
  uint32_t narrow = (uint32_t)count;
  put_tag(mrb, to, tag);
  put(mrb, to, &narrow, sizeof narrow);
}

static void put_text(mrb_state *mrb, buffer *to, char tag, const char *text, size_t length) {
  put_counted(mrb, to, tag, length);
  put(mrb, to, text, length);
}

static void put_value(mrb_state *mrb, buffer *to, mrb_value value, int depth);

typedef struct {
  buffer *to;
  int depth;
} pairs;

static int put_pair(mrb_state *mrb, mrb_value key, mrb_value value, void *user) {
  pairs *p = user;
  put_value(mrb, p->to, key, p->depth);
  put_value(mrb, p->to, value, p->depth);
  return 0;
}

static void put_value(mrb_state *mrb, buffer *to, mrb_value value, int depth) {
  if (depth > MAX_DEPTH) mrb_raise(mrb, E_ARGUMENT_ERROR, "value is nested too deeply");
  switch (mrb_type(value)) {
  case MRB_TT_FALSE:
    put_tag(mrb, to, mrb_nil_p(value) ? 'n' : 'f');
    return;
  case MRB_TT_TRUE:
    put_tag(mrb, to, 't');
    return;
  case MRB_TT_INTEGER: {
    int64_t number = mrb_integer(value);
    put_tag(mrb, to, 'i');
    put(mrb, to, &number, sizeof number);
    return;
  }
  case MRB_TT_FLOAT: {
    double number = mrb_float(value);
    put_tag(mrb, to, 'd');
    put(mrb, to, &number, sizeof number);
    return;
  }
  case MRB_TT_STRING:
    put_text(mrb, to, 's', RSTRING_PTR(value), RSTRING_LEN(value));
    return;
  case MRB_TT_SYMBOL: {
    mrb_int length;
    const char *name = mrb_sym_name_len(mrb, mrb_symbol(value), &length);
    put_text(mrb, to, ':', name, length);
    return;
  }
  case MRB_TT_ARRAY:
    put_counted(mrb, to, '[', RARRAY_LEN(value));
    for (mrb_int i = 0; i < RARRAY_LEN(value); i++) put_value(mrb, to, RARRAY_PTR(value)[i], depth + 1);
    return;
  case MRB_TT_HASH: {
    pairs p = {to, depth + 1};
    put_counted(mrb, to, '{', mrb_hash_size(mrb, value));
    mrb_hash_foreach(mrb, mrb_hash_ptr(value), put_pair, &p);
    return;
  }
  default:
    mrb_raisef(mrb, E_TYPE_ERROR, "%C cannot be handed to the server", mrb_obj_class(mrb, value));
  }
}

/* ---- into Ruby ------------------------------------------------------------------------------------------------- */

typedef struct {
  const uint8_t *at, *end;
} reader;

static void take(mrb_state *mrb, reader *from, void *into, size_t length) {
  if ((size_t)(from->end - from->at) < length) mrb_raise(mrb, E_RUNTIME_ERROR, "a tape breaks off");
  memcpy(into, from->at, length);
  from->at += length;
}

static const char *take_text(mrb_state *mrb, reader *from, uint32_t *length) {
  take(mrb, from, length, sizeof *length);
  if ((size_t)(from->end - from->at) < *length) mrb_raise(mrb, E_RUNTIME_ERROR, "a tape breaks off");
  const char *text = (const char *)from->at;
  from->at += *length;
  return text;
}

static mrb_value take_value(mrb_state *mrb, reader *from, int depth) {
  char tag;
  uint32_t length;
  if (depth > MAX_DEPTH) mrb_raise(mrb, E_RUNTIME_ERROR, "value is nested too deeply");
  take(mrb, from, &tag, 1);
  switch (tag) {
  case 'n': return mrb_nil_value();
  case 't': return mrb_true_value();
  case 'f': return mrb_false_value();
  case 'i': {
    int64_t number;
    take(mrb, from, &number, sizeof number);
    return mrb_int_value(mrb, (mrb_int)number);
  }
  case 'd': {
    double number;
    take(mrb, from, &number, sizeof number);
    return mrb_float_value(mrb, number);
  }
  case 's': {
    const char *text = take_text(mrb, from, &length);
    return mrb_str_new(mrb, text, length);
  }
  case ':': {
    const char *text = take_text(mrb, from, &length);
    return mrb_symbol_value(mrb_intern(mrb, text, length));
  }
  case '[': {
    take(mrb, from, &length, sizeof length);
    mrb_value array = mrb_ary_new(mrb);
    int arena = mrb_gc_arena_save(mrb);
    for (uint32_t i = 0; i < length; i++) {
      mrb_ary_push(mrb, array, take_value(mrb, from, depth + 1));
      mrb_gc_arena_restore(mrb, arena);
    }
    return array;
  }
  case '{': {
    take(mrb, from, &length, sizeof length);
    mrb_value hash = mrb_hash_new(mrb);
    int arena = mrb_gc_arena_save(mrb);
    for (uint32_t i = 0; i < length; i++) {
      mrb_value key = take_value(mrb, from, depth + 1);
      mrb_value value = take_value(mrb, from, depth + 1);
      mrb_hash_set(mrb, hash, key, value);
      mrb_gc_arena_restore(mrb, arena);
    }
    return hash;
  }
  case '!': {
    mrb_value name = take_value(mrb, from, depth + 1);
    mrb_value message = take_value(mrb, from, depth + 1);
    return mrb_funcall(mrb, mrb_obj_value(mrb_module_get(mrb, "Rt")), "fault", 2, name, message);
  }
  default: mrb_raise(mrb, E_RUNTIME_ERROR, "a tape holds an unknown tag");
  }
  return mrb_nil_value();
}

static mrb_value take_whole(mrb_state *mrb, fb_bytes bytes) {
  reader from = {bytes.data, bytes.data + bytes.length};
  return take_value(mrb, &from, 0);
}

/* ---- methods of Rt --------------------------------------------------------------------------------------------- */

/* Rt.call(op, *args): the host answers at once. */
static mrb_value rt_call(mrb_state *mrb, mrb_value self) {
  fb_vm *vm = mrb->ud;
  mrb_int op, count;
  const mrb_value *args;
  (void)self;
  mrb_get_args(mrb, "i*", &op, &args, &count);
  vm->out.length = 0;
  put_counted(mrb, &vm->out, '[', count);
  for (mrb_int i = 0; i < count; i++) put_value(mrb, &vm->out, args[i], 1);
  fb_bytes given = {vm->out.data, vm->out.length};
  mrb_value answer = take_whole(mrb, vm->config.call(vm->config.host, (uint32_t)op, given));
  if (mrb_type(answer) == MRB_TT_EXCEPTION) mrb_exc_raise(mrb, answer);
  return answer;
}

/* The frame that a task must not leave because a C function stands between it and its fiber. NULL when it may leave. */
static mrb_callinfo *what_holds(mrb_state *mrb) {
  struct mrb_context *c = mrb->c;
  for (mrb_callinfo *ci = c->ci; ci > c->cibase; ci--) {
    if (ci->cci > 0) return ci;
  }
  return NULL;
}

/* The method whose frame it is; a block is its method's, a Proc's own call is what it is called by. */
static mrb_sym name_of(mrb_state *mrb, const mrb_callinfo *ci) {
  return ci->mid ? ci->mid : mrb_intern_lit(mrb, "main");
}

static int is_c(const mrb_callinfo *ci) { return !ci->proc || MRB_PROC_CFUNC_P(ci->proc); }

/* Says who called what waits, in the words of the handler: `to_s' by String interpolation, a block by `each_object'. */
static void refuse(mrb_state *mrb, mrb_callinfo *held) {
  const mrb_callinfo *caller = held - 1;
  const char *way_out = "; wait before, and use what came";
  const char *what = mrb_sym_name(mrb, name_of(mrb, held));
  if (strcmp(what, "call") == 0) {
    mrb_raisef(mrb, E_FIBER_ERROR, "cannot wait here: the default block of a Hash was called by mruby itself (in `%n')%s",
               name_of(mrb, caller), way_out);
  }
  if (held->mid == caller->mid) {
    mrb_raisef(mrb, E_FIBER_ERROR, "cannot wait here: this block was called by `%n', which mruby cannot leave in the middle%s",
               name_of(mrb, caller), way_out);
  }
  if (is_c(caller)) {
    mrb_raisef(mrb, E_FIBER_ERROR, "cannot wait here: `%n' was called by `%n', which mruby cannot leave in the middle%s",
               name_of(mrb, held), name_of(mrb, caller), way_out);
  }
  mrb_raisef(mrb, E_FIBER_ERROR, "cannot wait here: `%n' was called by mruby itself (in `%n')%s", name_of(mrb, held),
             name_of(mrb, caller), way_out);
}

/* Rt.wait(op, *args): hands the task back to the event loop. Must stay the last act. */
static mrb_value rt_wait(mrb_state *mrb, mrb_value self) {
  fb_vm *vm = mrb->ud;
  mrb_int count;
  const mrb_value *args;
  (void)self;
  mrb_get_args(mrb, "*", &args, &count);
  mrb_callinfo *held = what_holds(mrb);
  if (held) refuse(mrb, held);
  vm->out.length = 0;
  put_counted(mrb, &vm->out, '[', count);
  for (mrb_int i = 0; i < count; i++) put_value(mrb, &vm->out, args[i], 1);
  return mrb_fiber_yield(mrb, 1, &vm->marker);
}

/* Rt.globals(names, values, known): sets global variables that Ruby cannot assign to ($1, $&): the values in turn, then nil
 * up to the number that was set before. */
static mrb_value rt_globals(mrb_state *mrb, mrb_value self) {
  mrb_value names, values;
  mrb_int known;
  (void)self;
  mrb_get_args(mrb, "AAi", &names, &values, &known);
  for (mrb_int i = 0; i < RARRAY_LEN(names) && (i < known || i < RARRAY_LEN(values)); i++) {
    mrb_value name = RARRAY_PTR(names)[i];
    if (!mrb_symbol_p(name)) mrb_raise(mrb, E_TYPE_ERROR, "a global variable's name is a Symbol");
    mrb_gv_set(mrb, mrb_symbol(name), i < RARRAY_LEN(values) ? RARRAY_PTR(values)[i] : mrb_nil_value());
  }
  return mrb_nil_value();
}

static int put_header(mrb_state *mrb, mrb_value key, mrb_value value, void *user) {
  buffer *to = user;
  put_text(mrb, to, 's', RSTRING_PTR(key), RSTRING_LEN(key));
  put_text(mrb, to, 's', RSTRING_PTR(value), RSTRING_LEN(value));
  return 0;
}

static int not_text(mrb_state *mrb, mrb_value key, mrb_value value, void *user) {
  (void)mrb;
  if (mrb_string_p(key) && mrb_string_p(value)) return 0;
  *(int *)user = 1;
  return 1;
}

/* Rt.plain(response): writes [status, [name, value ...], [parts ...]] as the task's result when it is of the usual shape
 * (Integer, Hash of Strings, Array of Strings) and says whether it was. */
static mrb_value rt_plain(mrb_state *mrb, mrb_value self) {
  fb_vm *vm = mrb->ud;
  mrb_value response;
  int odd = 0;
  (void)self;
  mrb_get_args(mrb, "o", &response);
  if (!mrb_array_p(response) || RARRAY_LEN(response) != 3) return mrb_false_value();
  mrb_value status = RARRAY_PTR(response)[0], headers = RARRAY_PTR(response)[1], body = RARRAY_PTR(response)[2];
  if (!mrb_integer_p(status) || !mrb_hash_p(headers) || !mrb_array_p(body)) return mrb_false_value();
  mrb_hash_foreach(mrb, mrb_hash_ptr(headers), not_text, &odd);
  for (mrb_int i = 0; !odd && i < RARRAY_LEN(body); i++) odd = !mrb_string_p(RARRAY_PTR(body)[i]);
  if (odd) return mrb_false_value();
  vm->out.length = 0;
  put_counted(mrb, &vm->out, '[', 3);
  put_value(mrb, &vm->out, status, 1);
  put_counted(mrb, &vm->out, '[', 2 * (size_t)mrb_hash_size(mrb, headers));
  mrb_hash_foreach(mrb, mrb_hash_ptr(headers), put_header, &vm->out);
  put_value(mrb, &vm->out, body, 1);
  return mrb_true_value();
}

/* ---- entries --------------------------------------------------------------------------------------------------- */

static void complain(fb_vm *vm, const char *name, const char *message) {
  mrb_state *mrb = vm->mrb;
  vm->out.length = 0;
  put_counted(mrb, &vm->out, '[', 3);
  put_text(mrb, &vm->out, 's', name, strlen(name));
  put_text(mrb, &vm->out, 's', message, strlen(message));
  put_counted(mrb, &vm->out, '[', 0);
}

static mrb_value describe(mrb_state *mrb, void *user) {
  fb_vm *vm = mrb->ud;
  mrb_value exception = *(mrb_value *)user;
  const char *name = mrb_obj_classname(mrb, exception);
  mrb_value message = mrb_funcall(mrb, exception, "message", 0);
  mrb_value trace = mrb_funcall(mrb, exception, "backtrace", 0);
  vm->out.length = 0;
  put_counted(mrb, &vm->out, '[', 3);
  put_text(mrb, &vm->out, 's', name, strlen(name));
  put_value(mrb, &vm->out, mrb_obj_as_string(mrb, message), 1);
  if (mrb_array_p(trace)) put_value(mrb, &vm->out, trace, 1);
  else put_counted(mrb, &vm->out, '[', 0);
  return mrb_nil_value();
}

/* Runs `body` protected, with the arena as it was before; what it raises is described in `out`. */
static int enter(fb_vm *vm, mrb_protect_error_func *body, void *user, mrb_value *result) {
  mrb_state *mrb = vm->mrb;
  int arena = mrb_gc_arena_save(mrb);
  mrb_bool raised = 0;
  mrb_value value = mrb_protect_error(mrb, body, user, &raised);
  mrb->exc = NULL;
  if (raised) {
    mrb_bool again = 0;
    driver_begins(vm);
    mrb_protect_error(mrb, describe, &value, &again);
    mrb->exc = NULL;
    if (again) complain(vm, "Exception", "an exception that cannot be described");
  }
  if (result) *result = value;
  mrb_gc_arena_restore(mrb, arena);
  return raised ? FB_RAISED : FB_DONE;
}

typedef struct {
  const uint8_t *code;
  size_t length;
  const char *file;
  int run;
} source;

static mrb_value load(mrb_state *mrb, void *user) {
  fb_vm *vm = mrb->ud;
  source *s = user;
  mrbc_context *context = mrbc_context_new(mrb);
  context->capture_errors = 1;
  context->lineno = 1;
  mrbc_filename(mrb, context, s->file);
  struct mrb_parser_state *parser = mrb_parse_nstring(mrb, (const char *)s->code, s->length, context);
  if (!parser) {
    mrbc_context_free(mrb, context);
    mrb_raise(mrb, E_RUNTIME_ERROR, "no memory to read the code");
  }
  if (parser->nerr > 0) {
    struct mrb_parser_message *first = &parser->error_buffer[0];
    const char *text = first->message ? first->message : "syntax error";
    int64_t line = first->lineno, column = first->column;
    vm->out.length = 0;
    put_counted(mrb, &vm->out, '[', 3);
    put_text(mrb, &vm->out, 's', "SyntaxError", 11);
    put_text(mrb, &vm->out, 's', text, strlen(text));
    put_counted(mrb, &vm->out, '[', 2);
    put_tag(mrb, &vm->out, 'i');
    put(mrb, &vm->out, &line, sizeof line);
    put_tag(mrb, &vm->out, 'i');
    put(mrb, &vm->out, &column, sizeof column);
    mrb_parser_free(parser);
    mrbc_context_free(mrb, context);
    return mrb_undef_value();
  }
  mrb_value value = mrb_nil_value();
  if (s->run) {
    value = mrb_load_exec(mrb, parser, context); /* frees the parser */
  } else {
    mrb_parser_free(parser);
  }
  mrbc_context_free(mrb, context);
  if (mrb->exc) {
    mrb_value exception = mrb_obj_value(mrb->exc);
    mrb->exc = NULL;
    mrb_exc_raise(mrb, exception);
  }
  return value;
}

static int run_source(fb_vm *vm, const uint8_t *code, size_t length, const char *file, int run) {
  source s = {code, length, file, run};
  mrb_value value;
  driver_begins(vm);
  int state = enter(vm, load, &s, &value);
  return state == FB_DONE && mrb_undef_p(value) ? FB_RAISED : state;
}

int fb_eval(fb_vm *vm, const uint8_t *code, size_t length, const char *file) {
  return run_source(vm, code, length, file, 1);
}

int fb_check(fb_vm *vm, const uint8_t *code, size_t length, const char *file) {
  return run_source(vm, code, length, file, 0);
}

typedef struct {
  uint32_t slot;
  uint32_t job;          /* start: number of the interned method name; request: number of the handler */
  fb_bytes bytes;        /* start: arguments; resume: the value */
  const fb_field *fields;
  size_t count;
  enum { START, REQUEST, RESUME } kind;
} step;

static mrb_value interned(mrb_state *mrb, fb_vm *vm, uint32_t number) {
  if (number >= RARRAY_LEN(vm->interned)) mrb_raise(mrb, E_RUNTIME_ERROR, "no such interned text");
  return RARRAY_PTR(vm->interned)[number];
}

static mrb_value field_text(mrb_state *mrb, fb_vm *vm, const uint8_t *bytes, uint32_t length) {
  return bytes ? mrb_str_new(mrb, (const char *)bytes, length) : interned(mrb, vm, length);
}

static mrb_value environment(mrb_state *mrb, fb_vm *vm, const step *s) {
  mrb_value env = mrb_hash_new_capa(mrb, (mrb_int)s->count + 4);
  int arena = mrb_gc_arena_save(mrb);
  for (size_t i = 0; i < s->count; i++) {
    const fb_field *field = &s->fields[i];
    mrb_value key = field_text(mrb, vm, field->key, field->key_length);
    mrb_value value = field_text(mrb, vm, field->value, field->value_length);
    mrb_hash_set(mrb, env, key, value);
    mrb_gc_arena_restore(mrb, arena);
  }
  return env;
}

static mrb_value fiber_of(mrb_state *mrb, fb_vm *vm, uint32_t slot) {
  mrb_value fiber = slot < RARRAY_LEN(vm->fibers) ? RARRAY_PTR(vm->fibers)[slot] : mrb_nil_value();
  if (mrb_nil_p(fiber)) {
    fiber = mrb_funcall(mrb, vm->module, "fiber", 0);
    mrb_ary_set(mrb, vm->fibers, slot, fiber);
  }
  return fiber;
}

static mrb_value take_step(mrb_state *mrb, void *user) {
  step *s = user;
  fb_vm *vm = mrb->ud;
  mrb_value args[2];
  int count = 2;
  mrb_value fiber = fiber_of(mrb, vm, s->slot);
  switch (s->kind) {
  case START:
    args[0] = interned(mrb, vm, s->job);
    args[1] = take_whole(mrb, s->bytes);
    break;
  case REQUEST:
    args[0] = mrb_int_value(mrb, s->job);
    args[1] = environment(mrb, vm, s);
    break;
  case RESUME:
    args[0] = take_whole(mrb, s->bytes);
    count = 1;
    break;
  }
  task_begins(vm);
  mrb_value result = mrb_fiber_resume(mrb, fiber, count, args);
  driver_begins(vm);
  if (mrb_obj_eq(mrb, result, vm->marker)) return result;
  /* Rt.plain has written a usual response already, and says so by true; everything else is written here. */
  if (!mrb_true_p(result)) {
    vm->out.length = 0;
    put_value(mrb, &vm->out, result, 0);
  }
  return mrb_nil_value();
}

/* The VM that this thread runs a step of. */
static _Thread_local fb_vm *volatile running;

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
/* Where the thread was when the signal came. */
static uintptr_t place(const ucontext_t *context) {
#ifdef __x86_64__
  return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#else
  return (uintptr_t)context->uc_mcontext.pc;
#endif
}

/* The interpreter's loop is one function of one object file, so what lies between it and the nearest other function of that
 * file is nothing else: no allocator, no lock of libc. Code that computes without end is there most of the time. */
static uintptr_t interpreter_end;

static void find_interpreter(void) {
  const uintptr_t begin = (uintptr_t)mrb_vm_exec;
  const uintptr_t others[] = {(uintptr_t)mrb_vm_run, (uintptr_t)mrb_top_run, (uintptr_t)mrb_funcall_with_block,
                              (uintptr_t)mrb_yield_with_class};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (others[i] > begin && (!interpreter_end || others[i] < interpreter_end)) interpreter_end = others[i];
  }
  /* Further away than any loop is long: not of one piece, so nothing is known. */
  if (interpreter_end && interpreter_end - begin > ((uintptr_t)1 << 18)) interpreter_end = 0;
}

static int in_interpreter(uintptr_t at) { return at >= (uintptr_t)mrb_vm_exec && at < interpreter_end; }
#define CAN_STOP 1
#else
#define CAN_STOP 0
#endif

#if CAN_STOP
/* Leaves the step for good when the thread is where nothing but the VM itself is half done; otherwise whoever wants it
 * stopped asks again. */
static void on_stop(int number, siginfo_t *info, void *context) {
  fb_vm *vm = running;
  (void)number;
  (void)info;
  if (!vm || atomic_load(&vm->unwanted) != atomic_load(&vm->serial) || !in_interpreter(place(context))) return;
  running = NULL;
  siglongjmp(vm->leave, 1);
}

static void hear_once(void) {
  find_interpreter();
  struct sigaction action = {.sa_sigaction = on_stop, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER};
  sigemptyset(&action.sa_mask);
  sigaction(SIGVTALRM, &action, NULL);
}

static void hear_stops(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, hear_once);
}

void fb_stop(fb_vm *vm, unsigned serial) {
  atomic_store(&vm->unwanted, serial);
  pthread_kill(vm->thread, SIGVTALRM);
}
#else
static void hear_stops(void) {}
void fb_stop(fb_vm *vm, unsigned serial) {
  (void)vm;
  (void)serial;
}
#endif

unsigned fb_serial(fb_vm *vm) { return atomic_load(&vm->serial); }

static int take_steps(fb_vm *vm, step *s) {
  mrb_value result;
  driver_begins(vm);
  atomic_fetch_add(&vm->serial, 1);
#if CAN_STOP
  if (sigsetjmp(vm->leave, 0)) return FB_STOPPED;
#endif
  running = vm;
  int state = enter(vm, take_step, s, &result);
  running = NULL;
  if (state != FB_DONE) return FB_BROKEN;
  return mrb_nil_p(result) ? FB_DONE : FB_WAIT;
}

int fb_start(fb_vm *vm, uint32_t slot, uint32_t job, fb_bytes args) {
  step s = {.kind = START, .slot = slot, .job = job, .bytes = args};
  return take_steps(vm, &s);
}

int fb_request(fb_vm *vm, uint32_t slot, uint32_t app, const fb_field *fields, size_t count) {
  step s = {.kind = REQUEST, .slot = slot, .job = app, .fields = fields, .count = count};
  return take_steps(vm, &s);
}

int fb_resume(fb_vm *vm, uint32_t slot, fb_bytes value) {
  step s = {.kind = RESUME, .slot = slot, .bytes = value};
  return take_steps(vm, &s);
}

typedef struct {
  const uint8_t *text;
  size_t length;
} text;

static mrb_value keep(mrb_state *mrb, void *user) {
  fb_vm *vm = mrb->ud;
  text *t = user;
  mrb_value string = mrb_str_new(mrb, (const char *)t->text, t->length);
  MRB_SET_FROZEN_FLAG(mrb_basic_ptr(string));
  mrb_ary_push(mrb, vm->interned, string);
  return string;
}

uint32_t fb_intern(fb_vm *vm, const uint8_t *bytes, size_t length) {
  text t = {bytes, length};
  driver_begins(vm);
  if (enter(vm, keep, &t, NULL) != FB_DONE) return UINT32_MAX;
  return (uint32_t)RARRAY_LEN(vm->interned) - 1;
}

fb_bytes fb_out(fb_vm *vm) {
  fb_bytes out = {vm->out.data, vm->out.length};
  return out;
}

void fb_abandon(fb_vm *vm, uint32_t slot) {
  if (slot < RARRAY_LEN(vm->fibers)) RARRAY_PTR(vm->fibers)[slot] = mrb_nil_value();
}

void fb_limit(fb_vm *vm, size_t task_limit) { vm->config.task_limit = task_limit; }

size_t fb_heap(fb_vm *vm) { return vm->heap; }

void fb_collect(fb_vm *vm) {
  driver_begins(vm);
  mrb_full_gc(vm->mrb);
}

void fb_interrupt(fb_vm *vm) { atomic_store_explicit(&vm->interrupted, 2, memory_order_relaxed); }

/* ---- open and close -------------------------------------------------------------------------------------------- */

static mrb_value furnish(mrb_state *mrb, void *user) {
  fb_vm *vm = user;
  struct RClass *rt = mrb_define_module(mrb, "Rt");
  vm->interrupted_class = mrb_define_class_under(mrb, rt, "Interrupted", mrb->eException_class);
  vm->module = mrb_obj_value(rt);
  vm->roots = mrb_ary_new(mrb);
  mrb_gc_register(mrb, vm->roots);
  vm->fibers = mrb_ary_new(mrb);
  mrb_ary_push(mrb, vm->roots, vm->fibers);
  vm->interned = mrb_ary_new(mrb);
  mrb_ary_push(mrb, vm->roots, vm->interned);
  vm->marker = mrb_obj_new(mrb, mrb->object_class, 0, NULL);
  mrb_ary_push(mrb, vm->roots, vm->marker);
  mrb_define_const(mrb, rt, "WAITING", vm->marker);
  mrb_define_module_function(mrb, rt, "call", rt_call, MRB_ARGS_REQ(1) | MRB_ARGS_REST());
  mrb_define_module_function(mrb, rt, "wait", rt_wait, MRB_ARGS_REST());
  mrb_define_module_function(mrb, rt, "plain", rt_plain, MRB_ARGS_REQ(1));
  mrb_define_module_function(mrb, rt, "globals", rt_globals, MRB_ARGS_REQ(3));
  return mrb_nil_value();
}

fb_vm *fb_open(const fb_config *config, const char **reason) {
  fb_vm *vm = calloc(1, sizeof *vm);
  *reason = "no memory for a Ruby VM";
  if (!vm) return NULL;
  vm->config = *config;
  vm->ceiling = SIZE_MAX;
  vm->blocks.next = vm->blocks.previous = &vm->blocks;
  vm->thread = pthread_self();
  hear_stops();
  vm->mrb = mrb_open_allocf(allocate, vm);
  if (vm->first_allocation && vm->first_allocation != sizeof(mrb_state)) {
    /* Its size is the first thing that the library asks memory for. Using it through other headers would corrupt it. */
    *reason = "libmruby was built with other options than its headers say (compile with or without MRB_USE_DEBUG_HOOK)";
    /* The state itself cannot be trusted enough to be closed. */
    return NULL;
  }
  if (!vm->mrb) {
    free(vm);
    return NULL;
  }
  vm->mrb->ud = vm;
  if (enter(vm, furnish, vm, NULL) != FB_DONE) {
    fb_close(vm);
    return NULL;
  }
#ifdef MRB_USE_DEBUG_HOOK
  vm->mrb->code_fetch_hook = hook;
#endif
  *reason = NULL;
  return vm;
}

void fb_close(fb_vm *vm) {
  driver_begins(vm);
  mrb_close(vm->mrb);
  free(vm->out.data);
  free(vm);
}

void fb_discard(fb_vm *vm) {
  for (block *b = vm->blocks.next; b != &vm->blocks;) {
    block *next = b->next;
    free(b);
    b = next;
  }
  free(vm->out.data);
  free(vm);
}

const char *fb_version(void) { return MRUBY_RUBY_VERSION " (mruby " MRUBY_VERSION ")"; }

int fb_has_hook(void) {
#ifdef MRB_USE_DEBUG_HOOK
  return 1;
#else
  return 0;
#endif
}
