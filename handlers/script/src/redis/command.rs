//! Redis commands from Ruby: encodes them, refuses some, and recognizes methods named after commands.

use ::redis::command::{array, bulk, number};
use mruby::TapeValue;

/// Writes one command; Arrays and Hashes among its words are flattened. Writes nothing after an error.
pub(super) fn write(out: &mut Vec<u8>, words: &[TapeValue<'_>]) -> Result<(), String> {
    let count: usize = words.iter().map(count).sum();
    if count == 0 || !matches!(words.first(), Some(TapeValue::Str(_) | TapeValue::Sym(_))) {
        return Err("a command starts with its name, such as call(:GET, 'key')".to_owned());
    }
    let before = out.len();
    array(out, count);
    for word in words {
        if let Err(error) = write_word(out, word) {
            out.truncate(before);
            return Err(error);
        }
    }
    Ok(())
}

fn count(word: &TapeValue<'_>) -> usize {
    match word {
        TapeValue::Array(words) => words.iter().map(count).sum(),
        TapeValue::Hash(pairs) => pairs.iter().map(|(key, value)| count(key) + count(value)).sum(),
        _ => 1,
    }
}

fn write_word(out: &mut Vec<u8>, word: &TapeValue<'_>) -> Result<(), String> {
    match word {
        TapeValue::Str(text) | TapeValue::Sym(text) => bulk(out, text),
        TapeValue::Int(value) => number(out, format_args!("{value}")),
        TapeValue::Float(value) => number(out, format_args!("{value:?}")),
        TapeValue::Array(words) => words.iter().try_for_each(|word| write_word(out, word))?,
        TapeValue::Hash(pairs) => {
            pairs
                .iter()
                .try_for_each(|(key, value)| write_word(out, key).and_then(|()| write_word(out, value)))?;
        }
        TapeValue::Nil | TapeValue::Bool(_) => {
            let name = match word {
                TapeValue::Nil => "nil",
                TapeValue::Bool(true) => "true",
                _ => "false",
            };
            return Err(format!(
                "{name} cannot be an argument for Redis, which takes Strings, Symbols and numbers; call to_s first"
            ));
        }
    }
    Ok(())
}

/// Returns why a command cannot be sent on a shared connection: it would change the connection's state or the
/// order of replies.
pub(super) fn refusal(words: &[TapeValue<'_>]) -> Option<&'static str> {
    let name = words.first().and_then(TapeValue::text)?;
    // Skips the most frequent commands, which have short names.
    if name.len() < 4 {
        return None;
    }
    let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
    let any = |words: &[&str]| words.iter().any(|word| is(word));
    match name[0].to_ascii_lowercase() {
        b'm' if is("MONITOR") => Some("MONITOR cannot be used in handlers; use redis-cli monitor"),
        b'm' if is("MULTI") => Some("use multi { |transaction| ... }: the connection is shared"),
        b'e' if is("EXEC") => Some("use multi { |transaction| ... }: the connection is shared"),
        b'd' if is("DISCARD") => Some("raise within multi { ... } to discard a transaction"),
        b'w' if is("WATCH") => Some("use watch(key) { ... }: the connection is shared"),
        b'u' if is("UNWATCH") => Some("leave the block of watch(key) { ... } to unwatch"),
        b's' | b'p' | b'u'
            if any(&["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE"]) =>
        {
            Some("use subscribe or psubscribe with a block: they need a connection of their own")
        }
        b's' if is("SELECT") => Some("use select(number), or db: of Redis.new"),
        b's' | b'p' if any(&["SYNC", "PSYNC"]) => Some("replication cannot be used in handlers"),
        b'a' if is("AUTH") => Some("use username: and password: of Redis.new"),
        b'h' if is("HELLO") => Some("use protocol: of Redis.new"),
        b'r' if is("RESET") => Some("the connection is shared; use reconnect"),
        b'q' if is("QUIT") => Some("the connection is shared; use close"),
        b'c' if is("CLIENT") => words
            .get(1)
            .and_then(TapeValue::text)
            .is_some_and(|word| word.eq_ignore_ascii_case(b"REPLY"))
            .then_some("CLIENT REPLY would take the replies of other tasks away"),
        _ => None,
    }
}

/// Commands with two-word names.
const CONTAINERS: [&str; 15] = [
    "acl", "client", "cluster", "command", "config", "debug", "function", "latency", "memory", "module",
    "object", "pubsub", "script", "slowlog", "xgroup",
];

/// All other commands that are methods.
const NAMES: &str = " append asking auth bgrewriteaof bgsave bitcount bitfield bitfield_ro bitop bitpos blmove blmpop \
    blpop brpop brpoplpush bzmpop bzpopmax bzpopmin copy dbsize decr decrby del discard dump echo eval eval_ro evalsha \
    evalsha_ro exec exists expire expireat expiretime failover fcall fcall_ro flushall flushdb geoadd geodist geohash \
    geopos georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch geosearchstore get getbit getdel \
    getex getrange getset hdel hello hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield hscan \
    hset hsetnx hstrlen hvals incr incrby incrbyfloat info keys lastsave lcs lindex linsert llen lmove lmpop lolwut \
    lpop lpos lpush lpushx lrange lrem lset ltrim mget migrate monitor move mset msetnx multi persist pexpire \
    pexpireat pexpiretime pfadd pfcount pfdebug pfmerge pfselftest ping psetex psubscribe psync pttl publish \
    punsubscribe quit randomkey readonly readwrite rename renamenx replicaof reset restore role rpop rpoplpush rpush \
    rpushx sadd save scan scard sdiff sdiffstore select set setbit setex setnx setrange shutdown sinter sintercard \
    sinterstore sismember slaveof smembers smismember smove sort sort_ro spop spublish srandmember srem sscan \
    ssubscribe strlen subscribe substr sunion sunionstore sunsubscribe swapdb sync time touch ttl type unlink \
    unsubscribe unwatch wait waitaof watch xack xadd xautoclaim xclaim xdel xinfo xlen xpending xrange xread \
    xreadgroup xrevrange xsetid xtrim zadd zcard zcount zdiff zdiffstore zincrby zinter zintercard zinterstore \
    zlexcount zmpop zmscore zpopmax zpopmin zrandmember zrange zrangebylex zrangebyscore zrangestore zrank zrem \
    zremrangebylex zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan zscore \
    zunion zunionstore ";

/// Returns the words of the command for a method: `config_get` is CONFIG GET. `None` if there is no such command.
pub(super) fn named(method: &str) -> Option<Vec<String>> {
    if CONTAINERS.contains(&method) || NAMES.split_ascii_whitespace().any(|name| name == method) {
        return Some(vec![method.to_ascii_uppercase()]);
    }
    let (first, rest) = method.split_once('_')?;
    let known = CONTAINERS.contains(&first) || first == "xinfo";
    let plain = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    // Redis joins the words of a subcommand with hyphens: CLIENT NO-EVICT.
    (known && plain).then(|| vec![first.to_ascii_uppercase(), rest.replace('_', "-").to_ascii_uppercase()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(words: &[TapeValue<'_>]) -> Result<String, String> {
        let mut out = Vec::new();
        write(&mut out, words).map(|()| String::from_utf8(out).expect("tests write text"))
    }

    #[test]
    fn words_are_flattened_and_counted() {
        let pairs = TapeValue::Hash(vec![
            (TapeValue::Sym(b"a"), TapeValue::Int(-12)),
            (TapeValue::Str(b"b"), TapeValue::Float(1.5)),
        ]);
        let words = [TapeValue::Sym(b"HSET"), TapeValue::Str(b"key"), TapeValue::Array(vec![pairs])];
        assert_eq!(
            written(&words).unwrap(),
            "*6\r\n$4\r\nHSET\r\n$3\r\nkey\r\n$1\r\na\r\n$3\r\n-12\r\n$1\r\nb\r\n$3\r\n1.5\r\n"
        );
        let long = written(&[TapeValue::Sym(b"GET"), TapeValue::Str(b"twelve bytes")]).unwrap();
        assert!(long.ends_with("$12\r\ntwelve bytes\r\n"), "{long}");
    }

    #[test]
    fn values_without_a_text_are_refused_and_leave_nothing() {
        let mut out = b"before".to_vec();
        let error =
            write(&mut out, &[TapeValue::Sym(b"SET"), TapeValue::Str(b"k"), TapeValue::Nil]).unwrap_err();
        assert!(error.starts_with("nil cannot be an argument"), "{error}");
        assert_eq!(out, b"before");
        assert!(written(&[]).is_err());
        assert!(written(&[TapeValue::Int(1)]).is_err());
    }

    #[test]
    fn commands_that_change_a_shared_connection_are_refused() {
        let refused = |words: &[&'static str]| {
            refusal(&words.iter().map(|word| TapeValue::Str(word.as_bytes())).collect::<Vec<_>>()).is_some()
        };
        for name in [
            "monitor",
            "MULTI",
            "Exec",
            "WATCH",
            "SUBSCRIBE",
            "psubscribe",
            "SELECT",
            "AUTH",
            "HELLO",
            "QUIT",
            "RESET",
        ] {
            assert!(refused(&[name]), "{name}");
        }
        assert!(refused(&["client", "reply", "off"]));
        for name in ["GET", "SET", "SADD", "MGET", "EXISTS", "client", "HGETALL", "SUNION"] {
            assert!(!refused(&[name]), "{name}");
        }
    }

    #[test]
    fn methods_are_commands() {
        assert_eq!(named("hgetall"), Some(vec!["HGETALL".to_owned()]));
        assert_eq!(named("config_get"), Some(vec!["CONFIG".to_owned(), "GET".to_owned()]));
        assert_eq!(named("client_no_evict"), Some(vec!["CLIENT".to_owned(), "NO-EVICT".to_owned()]));
        assert_eq!(named("geosearch"), Some(vec!["GEOSEARCH".to_owned()]));
        assert_eq!(
            (named("to_ary"), named("to_str"), named("gett"), named("config_")),
            (None, None, None, None)
        );
    }
}
