//! Redis from Ruby, against a real server.
#![cfg(test)]

mod server;

use server::Server;
use std::time::Duration;

/// Runs a file against a new server.
fn run(file: &str) {
    if let Some(server) = Server::start() {
        server.run(file).unwrap();
    }
}

#[test]
fn commands_have_the_types_of_redis_rb() {
    run("types.rb");
}

#[test]
fn commands_behave_as_in_redis_rb() {
    run("commands.rb");
}

#[test]
fn pipelines_transactions_and_watches() {
    run("transactions.rb");
}

#[test]
fn promises_of_h2o() {
    run("h2o.rb");
}

#[test]
fn subscriptions() {
    run("subscriptions.rb");
}

#[test]
fn addresses_users_databases_and_timeouts() {
    run("connections.rb");
}

#[test]
fn tls_with_and_without_a_client_certificate() {
    if let Some(server) = Server::start_with_tls() {
        server.run("tls.rb").unwrap();
    }
}

#[test]
fn limits_count_as_in_memory() {
    run("rate_limit.rb");
}

#[test]
fn many_tasks_get_their_own_replies_in_order() {
    run("order.rb");
}

/// Kills and restarts Redis at random moments under load: commands fail while it is down, then recover; a
/// task never gets another's reply.
#[test]
fn a_redis_that_is_killed_again_and_again() {
    let Some(mut server) = Server::start() else { return };
    let (done, stopped) = std::sync::mpsc::channel();
    let load = {
        // The load uses only the socket.
        let runner = Server::at(&server);
        std::thread::spawn(move || {
            let lines = runner.run("restarts.rb");
            done.send(()).expect("the test waits for it");
            lines
        })
    };
    let mut random: u64 = 0x5eed;
    let mut pause = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_millis((random >> 33) % most));
    };
    for _ in 0..100 {
        pause(60);
        server.kill();
        pause(20);
        server.begin();
    }
    server.wait();
    server.cli(&["SET", "stop", "1"]).expect("it was started again");
    stopped.recv_timeout(Duration::from_secs(60)).expect("the load ends when it is told to");
    let lines = load.join().expect("the load does not panic").unwrap();
    let counts = lines.last().expect("it logs its counts");
    let number = |name: &str| {
        let rest = counts.split(&format!("{name}=")).nth(1).expect("each number is logged");
        rest.split(' ').next().and_then(|number| number.parse::<u64>().ok()).expect("it is a number")
    };
    // The number of commands that succeed between two kills depends on the machine.
    assert!(number("right") >= 64 && number("failed") > 10, "{counts}");
    assert_eq!(number("recovered"), 64, "each task recovers after the last start: {counts}");
}
