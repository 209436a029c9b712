fn main() {
    let mut failed = 0;
    let mut passed = 0;
    for path in std::env::args().skip(1) {
        let read = |p: &str| -> String {
            use std::io::Read;
            let bytes = std::fs::read(p).unwrap();
            if bytes[..2] == [0x1f, 0x8b] {
                let mut s = String::new();
                flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut s).unwrap();
                s
            } else {
                String::from_utf8(bytes).unwrap()
            }
        };
        let case = kvsim::conformance::Case::parse(&read(&path)).unwrap();
        let stem = path.split(".case.json").next().unwrap();
        let exp = if std::path::Path::new(&format!("{stem}.expected.jsonl")).exists() {
            format!("{stem}.expected.jsonl")
        } else {
            format!("{stem}.expected.jsonl.gz")
        };
        let t = std::time::Instant::now();
        let r = std::panic::catch_unwind(|| kvsim::conformance::run_case(&case).unwrap());
        let el = t.elapsed();
        match r {
            Ok(log) => match kvsim::conformance::first_difference(&log, &read(&exp)) {
                None => {
                    passed += 1;
                    if el.as_millis() > 300 {
                        println!("{path} {el:?}");
                    }
                }
                Some(d) => {
                    failed += 1;
                    println!("FAIL {path}: line {} keys {:?}", d.line, d.keys);
                    if std::env::var("V").is_ok() {
                        println!("{d}");
                    }
                }
            },
            Err(_) => {
                failed += 1;
                println!("PANIC {path}");
            }
        }
    }
    println!("{passed} passed, {failed} failed");
}
