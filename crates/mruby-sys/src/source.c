/* Parses code, and runs it outside of tasks. */
#include "vm.h"

#include <mruby/compile.h>

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
    tape_counted(mrb, &vm->out, '[', 3);
    tape_text(mrb, &vm->out, 's', "SyntaxError", 11);
    tape_text(mrb, &vm->out, 's', text, strlen(text));
    tape_counted(mrb, &vm->out, '[', 2);
    tape_tag(mrb, &vm->out, 'i');
    tape_put(mrb, &vm->out, &line, sizeof line);
    tape_tag(mrb, &vm->out, 'i');
    tape_put(mrb, &vm->out, &column, sizeof column);
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
  memory_for_driver(vm);
  int state = vm_enter(vm, load, &s, &value);
  return state == FB_DONE && mrb_undef_p(value) ? FB_RAISED : state;
}

int fb_eval(fb_vm *vm, const uint8_t *code, size_t length, const char *file) {
  return run_source(vm, code, length, file, 1);
}

int fb_check(fb_vm *vm, const uint8_t *code, size_t length, const char *file) {
  return run_source(vm, code, length, file, 0);
}
