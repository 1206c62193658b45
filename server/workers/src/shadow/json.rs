//! The shape of JSON: the paths of its keys, with the types of the values.
//!
//! Elements of an array share a path. Keys that look like ids share one, too, because such objects are tables.

use super::parts::Shape;
use serde_json::Value;

/// The deepest level that is told apart.
const DEEPEST: usize = 12;

/// Adds the parts of a body.
pub(super) fn put(body: &[u8], shape: &mut Shape) {
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => walk(&value, &mut "JSON $".to_owned(), 0, shape),
        Err(_) => shape.put("JSON $", "not JSON"),
    }
}

fn walk(value: &Value, path: &mut String, depth: usize, shape: &mut Shape) {
    shape.add(path, type_of(value));
    if depth >= DEEPEST || shape.is_full() {
        return;
    }
    let length = path.len();
    match value {
        Value::Array(values) => {
            path.push_str("[]");
            values.iter().for_each(|one| walk(one, path, depth + 1, shape));
        }
        Value::Object(pairs) => {
            for (key, one) in pairs {
                path.push('.');
                path.push_str(if text::route::is_id(key.as_bytes()) { ":id" } else { key });
                walk(one, path, depth + 1, shape);
                path.truncate(length);
            }
        }
        _ => {}
    }
    path.truncate(length);
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_types() {
        let mut shape = Shape::default();
        put(br#"{"posts":[{"id":1,"by":null},{"id":"x","by":null}],"byId":{"12":true,"3f2504e0aa":false},"n":{}}"#, &mut shape);
        let parts: Vec<_> = shape.parts().collect();
        let expected = [
            ("JSON $", "object"),
            ("JSON $.byId", "object"),
            ("JSON $.byId.:id", "boolean"),
            ("JSON $.n", "object"),
            ("JSON $.posts", "array"),
            ("JSON $.posts[]", "object"),
            ("JSON $.posts[].by", "null"),
            ("JSON $.posts[].id", "number or string"),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn broken_json_is_said() {
        let mut shape = Shape::default();
        put(b"{\"a\":", &mut shape);
        assert_eq!(shape.get("JSON $"), Some("not JSON"));
    }
}
