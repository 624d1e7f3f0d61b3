BEGIN TRANSACTION;
CREATE TABLE events (
    k INTEGER NOT NULL, epoch INTEGER NOT NULL, at FLOAT NOT NULL, kind VARCHAR NOT NULL,
    trial INTEGER, body TEXT NOT NULL, PRIMARY KEY (k)
);
INSERT INTO "events" VALUES(1,1,1700000001.0,'epoch',NULL,'{"host":"host","pid":1,"trials":5,"jobs":1,"jobs_given":false,"pool":"","unrecorded_s":0.0}');
INSERT INTO "events" VALUES(2,1,1700000002.0,'trial',0,'{"trial":0,"searched":{"lr":0.001,"layers":2,"net":[64,64]},"config":{"lr":0.001,"layers":2,"net":[64,64]},"seen":0,"replicas":1,"births":[],"clone_of":null,"origin":"","reason":"","suggestion":null}');
INSERT INTO "events" VALUES(3,1,1700000003.0,'slice',0,'{"trial":0,"replica":0,"slice":0,"goal":{"until":900.0,"top":900.0},"reason":"slice 0","evidence":{}}');
INSERT INTO "events" VALUES(4,1,1700000004.0,'trial',1,'{"trial":1,"searched":{"lr":0.001,"layers":2,"net":null},"config":{"lr":0.001,"layers":2,"net":null},"seen":0,"replicas":1,"births":[],"clone_of":null,"origin":"","reason":"","suggestion":null}');
INSERT INTO "events" VALUES(5,1,1700000005.0,'slice',1,'{"trial":1,"replica":0,"slice":0,"goal":{"until":900.0,"top":900.0},"reason":"slice 0","evidence":{}}');
INSERT INTO "events" VALUES(6,1,1700000006.0,'outcome',0,'{"trial":0,"replica":0,"slice":0,"end":"goal","status":"PAUSED","reason":"goal","source":0,"error":"","error_at":0,"skipped":[],"exactness":"","saved":[{"iteration":3,"digest":"0000000000000000000000000000000000000000000000000000000000000003","file":"ckpt-3","size":10,"value":null}],"dropped":[],"remembered":{},"value_found":"","is_random":null,"sums":null,"saved_to":null,"reported_to":null,"log":0}');
INSERT INTO "events" VALUES(7,1,1700000007.0,'outcome',1,'{"trial":1,"replica":0,"slice":0,"end":"goal","status":"PAUSED","reason":"goal","source":0,"error":"","error_at":0,"skipped":[],"exactness":"","saved":[{"iteration":3,"digest":"0100000000000000000000000000000000000000000000000000000000000003","file":"ckpt-3","size":10,"value":null}],"dropped":[],"remembered":{},"value_found":"","is_random":null,"sums":null,"saved_to":null,"reported_to":null,"log":0}');
INSERT INTO "events" VALUES(8,1,1700000008.0,'trial',2,'{"trial":2,"searched":{"lr":0.001,"layers":2,"net":true},"config":{"lr":0.001,"layers":2,"net":true},"seen":0,"replicas":1,"births":[],"clone_of":null,"origin":"","reason":"","suggestion":null}');
INSERT INTO "events" VALUES(9,1,1700000009.0,'slice',2,'{"trial":2,"replica":0,"slice":0,"goal":{"until":900.0,"top":900.0},"reason":"slice 0","evidence":{}}');
INSERT INTO "events" VALUES(10,1,1700000010.0,'outcome',2,'{"trial":2,"replica":0,"slice":0,"end":"crashed","status":"PAUSED","reason":"crashed","source":0,"error":"","error_at":0,"skipped":[],"exactness":"","saved":[],"dropped":[],"remembered":{},"value_found":"","is_random":null,"sums":null,"saved_to":null,"reported_to":null,"log":0}');
INSERT INTO "events" VALUES(11,1,1700000011.0,'slice',2,'{"trial":2,"replica":0,"slice":1,"goal":{"until":900.0,"top":900.0},"reason":"slice 1","evidence":{}}');
INSERT INTO "events" VALUES(12,1,1700000012.0,'outcome',2,'{"trial":2,"replica":0,"slice":1,"end":"crashed","status":"FAILED","reason":"crashed","source":2,"error":"","error_at":0,"skipped":[],"exactness":"","saved":[],"dropped":[],"remembered":{},"value_found":"","is_random":null,"sums":null,"saved_to":null,"reported_to":null,"log":0}');
INSERT INTO "events" VALUES(13,1,1700000013.0,'slice',0,'{"trial":0,"replica":0,"slice":1,"goal":{"until":900.0,"top":900.0},"reason":"slice 1","evidence":{}}');
INSERT INTO "events" VALUES(14,1,1700000014.0,'outcome',0,'{"trial":0,"replica":0,"slice":1,"end":"interrupted","status":"PAUSED","reason":"interrupted","source":3,"error":"","error_at":0,"skipped":[],"exactness":"","saved":[],"dropped":[],"remembered":{},"value_found":"","is_random":null,"sums":null,"saved_to":null,"reported_to":null,"log":0}');
INSERT INTO "events" VALUES(15,1,1700000015.0,'end',NULL,'{"outcome":"stopped","reason":""}');
INSERT INTO "events" VALUES(16,2,1700000016.0,'epoch',NULL,'{"host":"host","pid":1,"trials":5,"jobs":1,"jobs_given":false,"pool":"","unrecorded_s":0.0}');
INSERT INTO "events" VALUES(17,2,1700000017.0,'slice',0,'{"trial":0,"replica":0,"slice":2,"goal":{"until":900.0,"top":900.0},"reason":"slice 2","evidence":{}}');
INSERT INTO "events" VALUES(18,2,1700000018.0,'trial',3,'{"trial":3,"searched":{"lr":0.001,"layers":4,"net":[64,64]},"config":{"lr":0.001,"layers":4,"net":[64,64]},"seen":0,"replicas":1,"births":[],"clone_of":null,"origin":"","reason":"","suggestion":null}');
INSERT INTO "events" VALUES(19,2,1700000019.0,'slice',3,'{"trial":3,"replica":0,"slice":0,"goal":{"until":900.0,"top":900.0},"reason":"slice 0","evidence":{}}');
INSERT INTO "events" VALUES(20,2,1700000020.0,'outcome',3,'{"trial":3,"replica":0,"slice":0,"end":"lost","status":"PAUSED","reason":"lost","source":0,"error":"","error_at":0,"skipped":[],"exactness":"","saved":[],"dropped":[],"remembered":{},"value_found":"","is_random":null,"sums":null,"saved_to":null,"reported_to":null,"log":0}');
INSERT INTO "events" VALUES(21,2,1700000021.0,'outcome',0,'{"trial":0,"replica":0,"slice":2,"end":"done","status":"COMPLETED","reason":"done","source":3,"error":"","error_at":0,"skipped":[],"exactness":"","saved":[{"iteration":9,"digest":"0000000000000000000000000000000000000000000000000000000000000009","file":"ckpt-9","size":10,"value":null}],"dropped":[],"remembered":{},"value_found":"","is_random":null,"sums":null,"saved_to":null,"reported_to":null,"log":0}');
INSERT INTO "events" VALUES(22,2,1700000022.0,'slice',3,'{"trial":3,"replica":0,"slice":1,"goal":{"until":900.0,"top":900.0},"reason":"slice 1","evidence":{}}');
INSERT INTO "events" VALUES(23,2,1700000023.0,'outcome',3,'{"trial":3,"replica":0,"slice":1,"end":"goal","status":"STOPPED","reason":"goal","source":0,"error":"","error_at":0,"skipped":[],"exactness":"","saved":[{"iteration":1,"digest":"0300000000000000000000000000000000000000000000000000000000000001","file":"ckpt-1","size":10,"value":null}],"dropped":[],"remembered":{},"value_found":"","is_random":null,"sums":null,"saved_to":null,"reported_to":null,"log":0}');
INSERT INTO "events" VALUES(24,2,1700000024.0,'move',1,'{"trial":1,"status":"PRUNED","reason":"moved to PRUNED","replica":0,"was_waiting":false,"evidence":{}}');
INSERT INTO "events" VALUES(25,2,1700000025.0,'end',NULL,'{"outcome":"finished","reason":""}');
INSERT INTO "events" VALUES(26,3,1700000026.0,'epoch',NULL,'{"host":"host","pid":1,"trials":6,"jobs":1,"jobs_given":false,"pool":"","unrecorded_s":0.0}');
INSERT INTO "events" VALUES(27,3,1700000027.0,'trial',4,'{"trial":4,"searched":{"lr":0.001,"layers":2,"net":[64,64]},"config":{"lr":0.001,"layers":2,"net":[64,64]},"seen":0,"replicas":1,"births":[],"clone_of":null,"origin":"","reason":"","suggestion":null}');
INSERT INTO "events" VALUES(28,3,1700000028.0,'slice',4,'{"trial":4,"replica":0,"slice":0,"goal":{"until":900.0,"top":900.0},"reason":"slice 0","evidence":{}}');
CREATE TABLE lease (
    epoch INTEGER NOT NULL, host VARCHAR, kernel VARCHAR NOT NULL, pid INTEGER NOT NULL,
    since FLOAT NOT NULL, renewed INTEGER NOT NULL, drove_at FLOAT NOT NULL, PRIMARY KEY (epoch)
);
INSERT INTO "lease" VALUES(3,'a-host','a-kernel',1,1700000000.0,0,0.0);
CREATE TABLE published (
    tracker VARCHAR NOT NULL, k INTEGER NOT NULL, PRIMARY KEY (tracker)
);
INSERT INTO "published" VALUES('optuna',7);
CREATE TABLE replicas (
    trial INTEGER NOT NULL, replica INTEGER NOT NULL, status VARCHAR NOT NULL,
    PRIMARY KEY (trial, replica)
);
INSERT INTO "replicas" VALUES(0,0,'COMPLETED');
INSERT INTO "replicas" VALUES(1,0,'PRUNED');
INSERT INTO "replicas" VALUES(2,0,'FAILED');
INSERT INTO "replicas" VALUES(3,0,'STOPPED');
INSERT INTO "replicas" VALUES(4,0,'RUNNING');
CREATE TABLE requests (
    number INTEGER NOT NULL, epoch INTEGER NOT NULL, at FLOAT NOT NULL, verb VARCHAR NOT NULL,
    body TEXT NOT NULL, answered_at FLOAT, answer TEXT, PRIMARY KEY (number)
);
INSERT INTO "requests" VALUES(1,3,1700000000.0,'stop','{"trials_named": [4]}',NULL,NULL);
CREATE TABLE results (
    trial INTEGER NOT NULL, replica INTEGER NOT NULL, iteration INTEGER NOT NULL,
    k INTEGER NOT NULL, metrics TEXT NOT NULL, PRIMARY KEY (trial, replica, iteration)
);
INSERT INTO "results" VALUES(0,0,1,6,'{"training_iteration":1,"timesteps_total":100,"time_total_s":0.5,"time_this_iter_s":0.5,"timestamp":1700000001,"date":"today","pid":77,"done":false,"info/score":0.0,"info/loss":1.0}');
INSERT INTO "results" VALUES(0,0,2,6,'{"training_iteration":2,"timesteps_total":200,"time_total_s":1.0,"time_this_iter_s":0.5,"timestamp":1700000002,"date":"today","pid":77,"done":false,"info/score":0.5,"info/loss":0.5}');
INSERT INTO "results" VALUES(0,0,3,6,'{"training_iteration":3,"timesteps_total":300,"time_total_s":1.5,"time_this_iter_s":0.5,"timestamp":1700000003,"date":"today","pid":77,"done":false,"info/score":0.6666666666666667,"info/loss":0.3333333333333333}');
INSERT INTO "results" VALUES(1,0,1,7,'{"training_iteration":1,"timesteps_total":100,"time_total_s":0.5,"time_this_iter_s":0.5,"timestamp":1700000001,"date":"today","pid":77,"done":false,"info/score":1.0,"info/loss":NaN,"wide":Infinity}');
INSERT INTO "results" VALUES(1,0,2,7,'{"training_iteration":2,"timesteps_total":200,"time_total_s":1.0,"time_this_iter_s":0.5,"timestamp":1700000002,"date":"today","pid":77,"done":false,"info/score":1.5,"info/loss":NaN,"wide":Infinity}');
INSERT INTO "results" VALUES(1,0,3,7,'{"training_iteration":3,"timesteps_total":300,"time_total_s":1.5,"time_this_iter_s":0.5,"timestamp":1700000003,"date":"today","pid":77,"done":false,"info/score":1.6666666666666667,"info/loss":NaN,"wide":Infinity}');
INSERT INTO "results" VALUES(2,0,1,10,'{"training_iteration":1,"timesteps_total":100,"time_total_s":0.5,"time_this_iter_s":0.5,"timestamp":1700000001,"date":"today","pid":77,"done":false,"info/score":2.0,"info/loss":1.0}');
INSERT INTO "results" VALUES(2,0,2,10,'{"training_iteration":2,"timesteps_total":200,"time_total_s":1.0,"time_this_iter_s":0.5,"timestamp":1700000002,"date":"today","pid":77,"done":false,"info/score":2.5,"info/loss":0.5}');
INSERT INTO "results" VALUES(2,0,3,12,'{"training_iteration":3,"timesteps_total":300,"time_total_s":28.5,"time_this_iter_s":0.5,"timestamp":1700000063,"date":"today","pid":77,"done":false,"info/score":2.6666666666666665,"info/loss":0.3333333333333333}');
INSERT INTO "results" VALUES(2,0,4,12,'{"training_iteration":4,"timesteps_total":400,"time_total_s":38.0,"time_this_iter_s":0.5,"timestamp":1700000064,"date":"today","pid":77,"done":false,"info/score":2.75,"info/loss":0.25}');
INSERT INTO "results" VALUES(2,0,5,12,'{"training_iteration":5,"timesteps_total":500,"time_total_s":47.5,"time_this_iter_s":0.5,"timestamp":1700000065,"date":"today","pid":77,"done":false,"info/score":2.8,"info/loss":0.2}');
INSERT INTO "results" VALUES(0,0,4,21,'{"training_iteration":4,"timesteps_total":400,"time_total_s":2.0,"time_this_iter_s":0.5,"timestamp":1700000004,"date":"today","pid":77,"done":false,"info/score":0.75,"info/loss":0.25}');
INSERT INTO "results" VALUES(0,0,5,21,'{"training_iteration":5,"timesteps_total":500,"time_total_s":2.5,"time_this_iter_s":0.5,"timestamp":1700000005,"date":"today","pid":77,"done":false,"info/score":0.8,"info/loss":0.2}');
INSERT INTO "results" VALUES(0,0,6,21,'{"training_iteration":6,"timesteps_total":600,"time_total_s":3.0,"time_this_iter_s":0.5,"timestamp":1700000006,"date":"today","pid":77,"done":false,"info/score":0.8333333333333334,"info/loss":0.16666666666666666}');
INSERT INTO "results" VALUES(0,0,7,21,'{"training_iteration":7,"timesteps_total":700,"time_total_s":3.5,"time_this_iter_s":0.5,"timestamp":1700000007,"date":"today","pid":77,"done":false,"info/score":0.8571428571428572,"info/loss":0.14285714285714285}');
INSERT INTO "results" VALUES(0,0,8,21,'{"training_iteration":8,"timesteps_total":800,"time_total_s":4.0,"time_this_iter_s":0.5,"timestamp":1700000008,"date":"today","pid":77,"done":false,"info/score":0.875,"info/loss":0.125}');
INSERT INTO "results" VALUES(0,0,9,21,'{"training_iteration":9,"timesteps_total":900,"time_total_s":4.5,"time_this_iter_s":0.5,"timestamp":1700000009,"date":"today","pid":77,"done":false,"info/score":0.8888888888888888,"info/loss":0.1111111111111111}');
INSERT INTO "results" VALUES(3,0,1,23,'{"training_iteration":1,"timesteps_total":100,"time_total_s":0.5,"time_this_iter_s":0.5,"timestamp":1700000001,"date":"today","pid":77,"done":false,"info/score":3.0,"info/loss":1.0}');
CREATE TABLE superseded (
    k INTEGER NOT NULL, trial INTEGER NOT NULL, replica INTEGER NOT NULL,
    iteration INTEGER NOT NULL, metrics TEXT NOT NULL, PRIMARY KEY (k, iteration)
);
INSERT INTO "superseded" VALUES(10,2,0,3,'{"training_iteration":3,"timesteps_total":300,"time_total_s":1.5,"time_this_iter_s":0.5,"timestamp":1700000003,"date":"today","pid":77,"done":false,"info/score":2.6666666666666665,"info/loss":0.3333333333333333}');
INSERT INTO "superseded" VALUES(10,2,0,4,'{"training_iteration":4,"timesteps_total":400,"time_total_s":2.0,"time_this_iter_s":0.5,"timestamp":1700000004,"date":"today","pid":77,"done":false,"info/score":2.75,"info/loss":0.25}');
CREATE TABLE sweep (
    id VARCHAR NOT NULL, name VARCHAR NOT NULL, spec TEXT NOT NULL, provenance TEXT NOT NULL,
    created_at FLOAT NOT NULL, PRIMARY KEY (id)
);
INSERT INTO "sweep" VALUES('00000000000000000000000000000000','golden','{"name":"golden","trials":5,"trainable":"tests.support.quadratic:Quadratic","metric":"info/score","mode":"max","score":"best","objectives":{},"constraints":{},"config":{},"forbid":[],"space":{"lr":{"loguniform":[1e-05,0.1]},"layers":{"randint":[1,4]},"net":{"choice":[[64,64],[128,128],null,true]}},"initial":[],"stop":{"training_iteration":9},"budget":{"time_s":null,"cpu_hours":null,"timesteps":null,"target":null,"patience":null,"settled":null,"min_delta":0.0},"searcher":{"name":"random"},"scheduler":{"name":"asha","time_attr":"timesteps_total","grace_period":100,"max_t":900},"seeds":null,"aggregate":"mean","checkpoint":{"every":null,"keep_last":2,"keep_best":1,"max_disk":null,"cache":10000000000},"resources":{"cpu":1,"gpu":0.0,"custom":{}},"machine":{"cpu":null,"gpu":null,"custom":{}},"limits":{"slice_s":30.0,"max_failures":3,"trial_s":null,"trial_memory":null,"trial_log":20000000,"no_progress_s":null,"no_answer_s":60.0,"not_finite":"continue","fail_fast":3,"max_concurrent":null},"isolate":null,"deterministic":null,"trackers":["mlflow","optuna"],"callbacks":[],"seed":7}','{"versions":{"python":"3.11.7"},"paths":[],"source":"0000"}',1700000000.0);
CREATE TABLE sweep_schema (version_num VARCHAR(32) NOT NULL, PRIMARY KEY (version_num));
INSERT INTO "sweep_schema" VALUES('0001');
CREATE INDEX ix_events_trial ON events (trial);
CREATE INDEX ix_results_k ON results (k);
COMMIT;
