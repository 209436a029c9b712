//! The harness on a made-up device, and the real kernels on whatever device computes on the CPU.

use std::collections::HashMap;

use super::device::{Device, DeviceError, DeviceKind, ElementType, Identity, Kernel, Telemetry};
use super::operation::{Batch, GemmFormat, Operation};
use super::plan::Effort;
use super::reference::probes;
use super::session::{Outcome, Session, SessionReport};
use super::table::TableFolder;

type Clock = Box<dyn FnMut(&Operation, u32, usize) -> f64>;

/// Answers with references, and with a time that the operation and the number of calls decide.
struct FakeDevice {
    identity: Identity,
    operation: Option<Operation>,
    answers: HashMap<u64, Vec<f64>>,
    sets: u32,
    /// Launches and sets of all calls, for what a test wants to know of them.
    calls: Vec<(&'static str, u32)>,
    /// Microseconds of so many launches of an operation, at the call of this number.
    time: Clock,
    /// What is done to a result: a kernel that is wrong.
    spoil: fn(&Operation, &mut Vec<f64>),
    /// The device's answer to a launch.
    refuse: fn(&Operation) -> Option<DeviceError>,
    throttled: bool,
}

impl FakeDevice {
    fn new(time: impl FnMut(&Operation, u32, usize) -> f64 + 'static) -> Self {
        let identity = Identity {
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            backend: "fake".to_owned(),
            driver: "1".to_owned(),
            kind: DeviceKind::Gpu,
            memory_bytes: Some(80 << 30),
            l2_bytes: Some(50 << 20),
            num_sms: Some(132),
            shared_with: None,
            clock: "made up",
        };
        Self {
            identity,
            operation: None,
            answers: HashMap::new(),
            sets: 0,
            calls: Vec::new(),
            time: Box::new(time),
            spoil: |_, _| {},
            refuse: |_| None,
            throttled: false,
        }
    }
}

impl Device for FakeDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn kernel(&self, operation: &Operation) -> Result<Kernel, String> {
        match operation {
            Operation::Gemm { format: GemmFormat::Fp8, .. } => Err("no fp8".to_owned()),
            _ => Ok(Kernel { name: "fake".to_owned(), dtype: ElementType::Bf16 }),
        }
    }

    fn prepare(&mut self, operation: &Operation, sets: u32) -> Result<(), DeviceError> {
        self.operation = Some(*operation);
        self.answers = probes(operation).into_iter().map(|probe| (probe.first, probe.expected)).collect();
        self.sets = sets;
        self.calls.push(("prepare", sets));
        Ok(())
    }

    fn run(&mut self, set: u32) -> Result<(), DeviceError> {
        assert!(set < self.sets);
        self.calls.push(("run", set));
        self.operation.as_ref().and_then(self.refuse).map_or(Ok(()), Err)
    }

    fn read(&mut self, first: u64, count: usize) -> Result<Vec<f64>, DeviceError> {
        let mut values = self.answers[&first].clone();
        assert_eq!(values.len(), count);
        if let Some(operation) = &self.operation {
            (self.spoil)(operation, &mut values);
        }
        Ok(values)
    }

    fn time_us(&mut self, launches: u32) -> Result<f64, DeviceError> {
        let operation = self.operation.expect("nothing is timed before it is prepared");
        self.calls.push(("time", launches));
        Ok((self.time)(&operation, launches, self.calls.len()))
    }

    fn telemetry(&mut self) -> Telemetry {
        let throttle_reasons = if self.throttled { vec!["sw_power_cap".to_owned()] } else { Vec::new() };
        Telemetry { sm_clock_mhz: Some(1980), throttle_reasons, ..Telemetry::default() }
    }
}

const COPY: Operation = Operation::DeviceCopy { bytes: 16 << 20 };
const WRITE: Operation = Operation::KvCacheWrite { tokens: 64, heads_kv: 8, head_dim: 128 };

fn run(device: &mut FakeDevice, operations: &[Operation]) -> SessionReport {
    Session::new(device, Effort::Quick).run_plan(operations, &mut |_, _, _| {})
}

fn steady(_: &Operation, launches: u32, _: usize) -> f64 {
    100.0 * f64::from(launches)
}

#[test]
fn launches_rotate_over_more_than_the_l2_cache() {
    let mut device = FakeDevice::new(steady);
    let report = run(&mut device, &[COPY, WRITE]);
    // 16 MiB each: ten make three times 50 MiB.
    assert_eq!((report.measurements[0].sets, report.measurements[0].cold_l2), (10, true));
    // 256 KiB each: more than 256 sets are too many, and the row says that its L2 was warm.
    assert_eq!((report.measurements[1].sets, report.measurements[1].cold_l2), (256, false));
    // The first and the last set were checked.
    let checked: Vec<u32> = device.calls.iter().filter(|call| call.0 == "run").map(|call| call.1).collect();
    assert!(checked.contains(&9) && checked.contains(&255));
}

#[test]
fn clocks_are_warm_before_anything_counts() {
    let mut device = FakeDevice::new(steady);
    run(&mut device, &[COPY]);
    // What came before the copy was prepared: the reference, for at least 0.3 s of device time.
    let copy_at = device.calls.iter().position(|call| *call == ("prepare", 10)).unwrap();
    let warm_up: u32 =
        device.calls[..copy_at].iter().filter(|call| call.0 == "time").map(|call| call.1).sum();
    assert!(f64::from(warm_up) * 100.0 >= 300_000.0, "{warm_up} launches");
}

#[test]
fn the_median_withstands_an_outlier_and_the_spread_tells_of_it() {
    let mut copies = 0;
    let mut device = FakeDevice::new(move |operation, launches, _| {
        copies += u32::from(*operation == COPY);
        // The fourth timing of the copy: its second group.
        let slow = *operation == COPY && copies == 4;
        f64::from(launches) * if slow { 180.0 } else { 100.0 }
    });
    let report = run(&mut device, &[COPY]);
    let Outcome::Timed(timing) = &report.measurements[0].outcome else { panic!("{report:?}") };
    assert_eq!((timing.median_us, timing.spread, timing.repeats), (100.0, 0.0, 1));
    // 4 ms in launches of 100 us.
    assert_eq!(timing.launches_per_group, 40);
}

#[test]
fn groups_that_stay_apart_are_kept_with_their_spread() {
    let mut device = FakeDevice::new(|operation, launches, call| {
        let noise = if *operation == COPY { [1.0, 1.1, 1.2][call % 3] } else { 1.0 };
        100.0 * noise * f64::from(launches)
    });
    let report = run(&mut device, &[COPY]);
    let Outcome::Timed(timing) = &report.measurements[0].outcome else { panic!("{report:?}") };
    assert_eq!(timing.repeats, 2);
    assert!((timing.spread - 0.2 / (timing.median_us / 100.0)).abs() < 1e-9, "{timing:?}");
}

#[test]
fn a_kernel_that_is_wrong_is_not_timed() {
    let mut device = FakeDevice::new(steady);
    device.spoil = |operation, values| {
        if *operation == WRITE {
            values[0] += 0.1;
        }
    };
    let report = run(&mut device, &[COPY, WRITE]);
    assert!(matches!(report.measurements[0].outcome, Outcome::Timed(_)));
    assert_eq!(report.measurements[1].outcome, Outcome::Wrong);
    let at = device.calls.iter().position(|call| *call == ("prepare", 256)).unwrap();
    let after: Vec<&str> = device.calls[at + 1..].iter().map(|call| call.0).collect();
    assert_eq!(after[..2], ["run", "run"]);
    assert!(after.get(2).is_none_or(|call| *call == "prepare"));
}

#[test]
fn a_kernel_that_is_wrong_on_a_small_shape_is_not_timed_on_any() {
    let mut device = FakeDevice::new(steady);
    device.spoil = |operation, values| {
        if matches!(operation, Operation::Gemm { m: 65, .. }) {
            values[0] += 1.0;
        }
    };
    let report = Session::new(&mut device, Effort::Quick).run(&mut |_, _, _| {});
    // The made-up device has one kernel for everything.
    assert_eq!(report.timed().count(), 0);
    assert!(report.measurements.iter().any(|m| m.outcome == Outcome::Wrong));
}

#[test]
fn a_kernel_that_fails_takes_no_other_along() {
    let mut device = FakeDevice::new(steady);
    device.refuse = |operation| match operation {
        Operation::KvCacheWrite { .. } => {
            Some(DeviceError::Call { call: "launch".to_owned(), message: "illegal address".to_owned() })
        }
        Operation::DeviceCopy { bytes } if *bytes > 1 << 30 => {
            Some(DeviceError::OutOfMemory { bytes: *bytes })
        }
        _ => None,
    };
    let large = Operation::DeviceCopy { bytes: 2 << 30 };
    let fp8 = Operation::Gemm { format: GemmFormat::Fp8, m: 16, n: 1024, k: 1024 };
    let report = run(&mut device, &[WRITE, large, fp8, COPY]);
    let outcomes: Vec<&Outcome> = report.measurements.iter().map(|m| &m.outcome).collect();
    assert_eq!(*outcomes[0], Outcome::Failed("launch: illegal address".to_owned()));
    assert_eq!(*outcomes[1], Outcome::LeftOut("not enough device memory (2147483648 bytes)".to_owned()));
    assert_eq!(*outcomes[2], Outcome::LeftOut("no fp8".to_owned()));
    assert!(matches!(outcomes[3], Outcome::Timed(_)));
}

#[test]
fn a_batch_in_which_the_device_slowed_down_is_timed_again() {
    // Throttles once, after the copy was timed for the first time.
    let mut copies = 0;
    let mut device = FakeDevice::new(move |operation, launches, _| {
        copies += u32::from(*operation == COPY);
        let slow = (7..14).contains(&copies);
        f64::from(launches) * if slow { 120.0 } else { 100.0 }
    });
    device.throttled = true;
    let report = run(&mut device, &[COPY]);
    assert_eq!(report.repeated_batches, 1);
    let measurement = &report.measurements[0];
    assert_eq!(measurement.telemetry.throttle_reasons, ["sw_power_cap"]);
    assert!(measurement.drift.is_some());
}

#[test]
fn a_slow_device_ends_in_time() {
    // 90 ms a launch: the whole plan would take many minutes.
    let mut device = FakeDevice::new(|_, launches, _| 90_000.0 * f64::from(launches));
    let report = Session::new(&mut device, Effort::Quick).run(&mut |_, _, _| {});
    assert!(report.device_s <= 90.0, "{} s", report.device_s);
    let late = Outcome::LeftOut("the time was up".to_owned());
    assert!(report.measurements.iter().any(|m| m.outcome == late));
    assert!(report.timed().count() > 20);
}

#[test]
fn what_would_take_too_long_is_not_launched_at_all() {
    // 0.1 TFLOP/s: the reference takes 0.17 s, a driver's watchdog would end the largest products.
    let mut device = FakeDevice::new(|operation, launches, _| operation.flops() / 1e5 * f64::from(launches));
    let large = Operation::Gemm { format: GemmFormat::Bf16, m: 8192, n: 28_672, k: 4096 };
    let report = Session::new(&mut device, Effort::Full).run_plan(&[large], &mut |_, _, _| {});
    let expected = "one launch would take some 19 s, by what a smaller product took";
    assert_eq!(report.measurements[0].outcome, Outcome::LeftOut(expected.to_owned()));
}

#[test]
fn a_launch_that_takes_too_long_is_left_out() {
    let mut device = FakeDevice::new(|operation, launches, _| {
        f64::from(launches) * if *operation == COPY { 3e6 } else { 100.0 }
    });
    let report = run(&mut device, &[COPY, WRITE]);
    assert_eq!(report.measurements[0].outcome, Outcome::LeftOut("one launch takes 3.0 s".to_owned()));
    assert!(matches!(report.measurements[1].outcome, Outcome::Timed(_)));
}

#[test]
fn tables_can_be_fitted() {
    // An H100 with 3 us a launch, 700 TFLOP/s and 3 TB/s.
    let mut device = FakeDevice::new(|operation, launches, _| {
        let (compute_us, memory_us) = (operation.flops() / 700e6, operation.bytes_moved(2) as f64 / 3e6);
        f64::from(launches) * (3.0 + compute_us.max(memory_us))
    });
    let report = Session::new(&mut device, Effort::Quick).run(&mut |_, _, _| {});
    let dir = tempfile::tempdir().unwrap();
    let tables = TableFolder::create(&dir.path().join("h100")).unwrap().write(&report).unwrap();
    let timings = crate::calibrate::Timings::read(&tables).unwrap();
    let origin = crate::calibrate::Origin {
        source: None,
        date: "2026-01-01".to_owned(),
        driver: report.identity.driver.clone(),
    };
    let profiles = crate::calibrate::fit_profiles(&timings, &origin, &|_| {});
    assert_eq!(profiles[0].gpu, "H100-SXM");
    let (_, gemm) = profiles[0].gemm.iter().next().unwrap();
    assert_eq!(gemm.rows, 40);
    assert!(gemm.fit_error.median_percent < 5.0, "{:?}", gemm.fit_error);
}

#[cfg(feature = "wgpu")]
#[test]
fn tables_of_a_real_device_are_complete() {
    let mut device = match super::find_device(Some(super::Backend::Wgpu), 0, true) {
        Ok(device) => device,
        Err(error) => return eprintln!("not tested: {error}"),
    };
    let gemm = Operation::Gemm { format: GemmFormat::Bf16, m: 4, n: 64, k: 64 };
    let report = Session::new(device.as_mut(), Effort::Check).run_plan(&[gemm, WRITE], &mut |_, _, _| {});
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("tables");
    assert_eq!(TableFolder::create(&target).unwrap().write(&report).unwrap(), [target.join("gemm.csv")]);
    let mut rows = csv::Reader::from_path(target.join("gemm.csv")).unwrap();
    let row = rows.records().next().unwrap().unwrap();
    assert_eq!(row.iter().skip(3).take(2).collect::<Vec<_>>(), ["gemm", "kvsim_wgsl_gemm"]);
    assert_eq!(row.iter().skip(6).take(3).collect::<Vec<_>>(), ["4", "64", "64"]);
    assert!(row[9].parse::<f64>().unwrap() > 0.0);
    assert!(target.join("kv_cache_write.csv").exists());
}

#[test]
fn tables_have_the_columns_of_published_timings() {
    let mut device = FakeDevice::new(steady);
    let attention = |batch| {
        Operation::Attention(super::operation::Attention {
            batch,
            heads_q: 32,
            heads_kv: 8,
            head_dim: 128,
            block_size: 16,
        })
    };
    let report = run(
        &mut device,
        &[
            Operation::Gemm { format: GemmFormat::Bf16, m: 8, n: 4096, k: 4096 },
            attention(Batch::Decode { sequences: 64, kv_len: 1024 }),
            attention(Batch::Prefill { sequences: 1, q_len: 64, kv_past: 128 }),
            attention(Batch::Mixed { q_len: 64, kv_past: 0, decodes: 8, kv_decode: 256 }),
            COPY,
            Operation::Launch,
        ],
    );
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("h100");
    let for_a_fit = TableFolder::create(&target).unwrap().write(&report).unwrap();
    assert_eq!(for_a_fit, [target.join("gemm.csv"), target.join("attention.csv")]);
    let mut names: Vec<String> = std::fs::read_dir(&target)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["attention.csv", "copies.csv", "gemm.csv", "launch.csv", "manifest.json", "measurements.csv"]
    );
    let read = |name: &str| std::fs::read_to_string(target.join(name)).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        read("gemm.csv"),
        format!(
            "source,framework,gpu,op,kernel,dtype,m,n,k,time_us,timing\n\
             kvsim,kvsim-{version},H100-SXM,gemm,fake,bfloat16,8,4096,4096,100.000,\"made up, cold L2\"\n"
        )
    );
    let attention = read("attention.csv");
    let lines: Vec<&str> = attention.lines().collect();
    assert_eq!(
        lines[0],
        "source,framework,gpu,op,kernel,dtype,kv_dtype,batch,q_len,kv_len,kv_past,n_decode,kv_decode,heads_q,\
         heads_kv,head_dim,window,time_us,timing"
    );
    let start = format!("kvsim,kvsim-{version},H100-SXM");
    let shape = |line: &str| line.strip_prefix(&start).unwrap().to_owned();
    assert_eq!(
        shape(lines[1]),
        ",decode_attention,fake,bfloat16,bfloat16,64,1,1024,,,,32,8,128,0,100.000,\"made up, cold L2\""
    );
    assert_eq!(
        shape(lines[2]),
        ",prefill_attention,fake,bfloat16,bfloat16,1,64,192,128,,,32,8,128,0,100.000,\"made up, cold L2\""
    );
    assert_eq!(
        shape(lines[3]),
        ",mixed_attention,fake,bfloat16,bfloat16,1,64,64,0,8,256,32,8,128,0,100.000,\"made up, cold L2\""
    );
    let launch = format!("{start},launch,fake,bfloat16,1,100.000,device clock around a loop of launches");
    assert_eq!(read("launch.csv").lines().nth(1).unwrap(), launch);
    assert_eq!(read("measurements.csv").lines().count(), 7);
    assert!(read("manifest.json").contains("\"gpu\": \"H100-SXM\""));
}
