//! Redis from Ruby, against a real one.
#![cfg(test)]

mod server;

use server::Server;
use std::time::Duration;

/// Runs a file against a server of its own.
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
fn commands_answer_as_with_redis_rb() {
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
fn tls_with_and_without_a_certificate_of_ones_own() {
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

/// Killed and started again at any moment, under load: errors while it is gone, then it goes on; never another's reply.
#[test]
fn a_redis_that_dies_again_and_again() {
    let Some(mut server) = Server::start() else { return };
    let (done, stopped) = std::sync::mpsc::channel();
    let load = {
        // The socket is all that the load knows of the server.
        let runner = Server::at(&server);
        std::thread::spawn(move || {
            let said = runner.run("restarts.rb");
            done.send(()).expect("the test waits for it");
            said
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
    let said = load.join().expect("the load does not panic").unwrap();
    let told = said.last().expect("it tells what it has seen");
    let number = |name: &str| {
        let rest = told.split(&format!("{name}=")).nth(1).expect("each number is told");
        rest.split(' ').next().and_then(|number| number.parse::<u64>().ok()).expect("it is a number")
    };
    // How many get through between two deaths is the machine's business.
    assert!(number("right") >= 64 && number("failed") > 10, "{told}");
    assert_eq!(number("recovered"), 64, "each task goes on after the last start: {told}");
}
