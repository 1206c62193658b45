//! Tests of addresses: reading, writing back and refusing.

use super::*;
use crate::value::tls::Verify;
use proptest::prelude::*;

fn bind(text: &str) -> Bind {
    text.parse().unwrap_or_else(|mistake| panic!("{text}: {mistake:?}"))
}

#[test]
fn every_spelling_of_tcp() {
    for text in ["tcp://127.0.0.1:3000", "127.0.0.1:3000", "tcp://127.0.0.1:3000/"] {
        assert_eq!(bind(text), Bind::tcp("127.0.0.1", 3000));
    }
    assert_eq!(bind("tcp://[::1]:3000"), Bind::tcp("::1", 3000));
    assert_eq!(bind("[::]:0"), Bind::tcp("::", 0));
    assert_eq!(bind("tcp://:80"), Bind::tcp("::", 80));
    assert_eq!(bind("app_1.local:80"), Bind::tcp("app_1.local", 80));
    let Bind::Tcp { backlog, .. } = bind("tcp://localhost:80?backlog=16") else { panic!("not TCP") };
    assert_eq!(backlog, 16);
}

#[test]
fn every_spelling_of_unix() {
    for text in ["unix:///run/app.sock", "unix:/run/app.sock", "/run/app.sock"] {
        assert_eq!(bind(text), Bind::unix("/run/app.sock"));
    }
    assert_eq!(bind("unix://tmp/app.sock").based_at(Path::new("/srv")), Bind::unix("/srv/tmp/app.sock"));
    assert_eq!(bind("./app.sock").based_at(Path::new("/srv")), Bind::unix("/srv/app.sock"));
    let full = Bind::Unix { path: "/a".into(), umask: Some(0o117), mode: Some(0o660), backlog: 1024 };
    assert_eq!(bind("unix:///a?umask=0117&mode=0660&backlog=1024"), full);
}

#[test]
fn all_sockets_of_systemd() {
    let systemd = bind("systemd");
    assert_eq!(
        (&systemd, systemd.to_string().as_str()),
        (&Bind::Systemd { https: false, need: SystemdNeed::Required }, "systemd")
    );
    assert!(systemd.clashes_with(&bind("systemd")) && !systemd.clashes_with(&bind("tcp://[::]:80")));
    assert_eq!(systemd.encrypted(), Bind::Systemd { https: true, need: SystemdNeed::Required });
    for (text, need) in
        [("systemd?optional=true", SystemdNeed::Optional), ("systemd?only=true", SystemdNeed::Only)]
    {
        let bind: Bind = text.parse().unwrap();
        assert_eq!((&bind, bind.to_string().as_str()), (&Bind::Systemd { https: false, need }, text));
    }
    assert_eq!(bind("systemd:80"), Bind::tcp("systemd", 80), "a host of that name");
    assert!("systemd?backlog=3".parse::<Bind>().is_err());
}

#[test]
fn options_of_a_port() {
    let text = "tcp://0.0.0.0:80?h2c=true&proxy_protocol=any";
    let Bind::Tcp { tls: None, http2: true, proxy_protocol: Some(ProxyProtocol::Any), .. } = bind(text)
    else {
        panic!("{:?}", bind(text));
    };
    assert_eq!(bind(text).to_string(), text);
}

#[test]
fn both_families_or_one() {
    for (text, both, written) in [
        ("tcp://[::]:80", true, "tcp://[::]:80"),
        ("tcp://:80", true, "tcp://[::]:80"),
        ("[0:0::]:80?ipv6only=off", true, "tcp://[::]:80"),
        ("tcp://[::]:80?ipv6only=on", false, "tcp://[::]:80?ipv6only=true"),
        ("ssl://[::]:443?ipv6only=true", false, "ssl://[::]:443?ipv6only=true"),
        ("tcp://[::1]:80", false, "tcp://[::1]:80"),
        ("tcp://0.0.0.0:80", false, "tcp://0.0.0.0:80"),
    ] {
        assert_eq!((bind(text).takes_both(), bind(text).to_string().as_str()), (both, written), "{text}");
    }
}

#[test]
fn the_words_of_ssl() {
    assert_eq!(bind("ssl://0.0.0.0:443"), Bind::ssl("0.0.0.0", 443, BindTls::default()));
    let full =
        bind("ssl://[::]:443?cert=a%26b.pem&key=/k.pem&ca=ca.pem&verify_mode=force_peer&no_tlsv1=true");
    let full = full.based_at(Path::new("/srv"));
    let Some(tls) = full.tls() else { panic!("{full}") };
    let files = tls.files.as_ref().unwrap();
    assert_eq!((files.cert.as_path(), files.key.as_path()), (Path::new("/srv/a&b.pem"), Path::new("/k.pem")));
    assert_eq!((tls.ca.as_deref(), tls.verify), (Some(Path::new("/srv/ca.pem")), Some(Verify::Required)));
    assert_eq!(bind(&full.to_string()), full, "{full}");
    assert!(full.clashes_with(&bind("tcp://[::]:443")));
}

#[test]
fn slips_are_explained() {
    for (text, expected) in [
        ("ssl://0.0.0.0:443?cert=a", "key=FILE"),
        ("ssl://0.0.0.0:443?key=a", "cert=FILE"),
        ("ssl://0.0.0.0:443?cert=&key=a", "path"),
        ("ssl://0.0.0.0:443?cert=%zz&key=a", "path"),
        ("ssl://0.0.0.0:443?verify_mode=maybe", "force_peer"),
        ("ssl://0.0.0.0:443?ssl_cipher_filter=ALL", "cipher suites are fixed"),
        ("ssl://0.0.0.0:443?no_tlsv1=false", "RFC 8996"),
        ("ssl://0.0.0.0:443?key_password_command=cat", "must not be encrypted"),
        ("ssl://0.0.0.0:443?umask=0117", "only cert, key"),
        ("tcp://h:1?proxy_protocol=3", "proxy_protocol=v1"),
        ("tcp://h:1?h2c=maybe", "h2c=true"),
        ("http://localhost:3000", "tcp://"),
        ("localhost", ""),
        ("localhost:http", "port"),
        ("localhost:65536", "port"),
        ("::1:3000", "brackets"),
        ("tcp://[zz]:1", "IPv6"),
        ("tcp://1.2.3:80", "four numbers"),
        ("tcp://a b:80", "host name"),
        ("unix://", "path"),
        ("unix://@name", "abstract"),
        ("unix:///a?mode=0888", "octal"),
        ("unix:///a?mode=07777", "octal"),
        ("unix:///a?backlog=0", "at least 1"),
        ("tcp://h:1?umask=0117", "only backlog"),
        ("tcp://h:1?ipv6only=true", "IPv6 address such as [::]"),
        ("tcp://0.0.0.0:1?ipv6only=on", "IPv6 address such as [::]"),
        ("tcp://[::]:1?ipv6only=maybe", "ipv6only=true or ipv6only=false"),
    ] {
        let mistake = text.parse::<Bind>().expect_err(text);
        let found = mistake.expected.unwrap_or_default();
        assert!(found.contains(expected), "{text}: {found}");
    }
    let near = |text: &str| text.parse::<Bind>().expect_err(text).nearest;
    assert_eq!(near("3000").as_deref(), Some("tcp://[::]:3000"));
    assert_eq!(near("http://localhost:3000/").as_deref(), Some("tcp://localhost:3000"));
    assert_eq!(near("https://localhost:3000/").as_deref(), Some("ssl://localhost:3000"));
    assert_eq!(near("unix:///a?umsk=1").as_deref(), Some("umask"));
}

#[test]
fn the_same_address_twice_clashes() {
    assert!(bind("tcp://h:1").clashes_with(&bind("h:1?backlog=7")));
    assert!(!bind("tcp://h:0").clashes_with(&bind("tcp://h:0")));
    assert!(bind("/a").clashes_with(&bind("unix:///a")));
    assert!(!bind("/a").clashes_with(&bind("tcp://h:1")));
}

proptest! {
    #[test]
    fn what_is_read_is_written_back(text in "(tcp://|ssl://|unix://|unix:|/|)[a-z0-9:.\\[\\]/@]{0,20}(\\?(mode|umask|backlog|h2c|cert=%25&key)=[0-9]{1,4})?") {
        if let Ok(bind) = text.parse::<Bind>() {
            prop_assert_eq!(bind.to_string().parse::<Bind>(), Ok(bind));
        }
    }

    #[test]
    fn no_text_panics(text in ".*") {
        let _ = text.parse::<Bind>().is_ok();
    }
}
