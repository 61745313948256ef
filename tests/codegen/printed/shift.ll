define void @shift(ptr %buffers, ptr %s, i64 %lo, i64 %hi, ptr %scratch, ptr %fault) nounwind {
entry:
  %v1 = getelementptr i64, ptr %s, i64 0
  %v2 = load i64, ptr %v1
  %v3 = getelementptr ptr, ptr %buffers, i64 0
  %v4 = load ptr, ptr %v3
  %v5 = getelementptr ptr, ptr %buffers, i64 1
  %v6 = load ptr, ptr %v5
  %v7 = getelementptr i8, ptr %scratch, i64 0
  br label %head1
head1:
  %v8 = phi i64 [ %lo, %entry ], [ %v62, %exit4 ]
  %v63 = icmp slt i64 %v8, %hi
  br i1 %v63, label %body1, label %exit1
body1:
  %v9 = sub i64 24, 15
  %v13 = mul i64 %v8, 24
  br label %head2
head2:
  %v10 = phi i64 [ 0, %body1 ], [ %v25, %body2 ]
  %v11 = phi <8 x float> [ splat (float 0x0000000000000000), %body1 ], [ %v23, %body2 ]
  %v12 = phi <8 x float> [ splat (float 0x0000000000000000), %body1 ], [ %v24, %body2 ]
  %v26 = icmp slt i64 %v10, %v9
  br i1 %v26, label %body2, label %exit2
body2:
  %v14 = add i64 %v13, %v10
  %v15 = getelementptr float, ptr %v4, i64 %v14
  %v16 = load <8 x float>, ptr %v15, align 4
  %v17 = add i64 %v10, 8
  %v18 = add i64 %v13, %v17
  %v19 = getelementptr float, ptr %v4, i64 %v18
  %v20 = load <8 x float>, ptr %v19, align 4
  %v21 = getelementptr float, ptr %v7, i64 %v10
  store <8 x float> %v16, ptr %v21, align 4
  %v22 = getelementptr float, ptr %v7, i64 %v17
  store <8 x float> %v20, ptr %v22, align 4
  %v23 = fadd <8 x float> %v11, %v16
  %v24 = fadd <8 x float> %v12, %v20
  %v25 = add nsw i64 %v10, 16
  br label %head2
exit2:
  %v27 = sub i64 24, 7
  br label %head3
head3:
  %v28 = phi i64 [ %v10, %exit2 ], [ %v35, %body3 ]
  %v29 = phi <8 x float> [ %v11, %exit2 ], [ %v34, %body3 ]
  %v36 = icmp slt i64 %v28, %v27
  br i1 %v36, label %body3, label %exit3
body3:
  %v30 = add i64 %v13, %v28
  %v31 = getelementptr float, ptr %v4, i64 %v30
  %v32 = load <8 x float>, ptr %v31, align 4
  %v33 = getelementptr float, ptr %v7, i64 %v28
  store <8 x float> %v32, ptr %v33, align 4
  %v34 = fadd <8 x float> %v29, %v32
  %v35 = add nsw i64 %v28, 8
  br label %head3
exit3:
  %v37 = fadd <8 x float> %v29, %v12
  %v38 = call reassoc float @llvm.vector.reduce.fadd.v8f32(float 0x8000000000000000, <8 x float> %v37)
  %v39 = fadd float 0x0000000000000000, %v38
  %v40 = fdiv float %v39, 0x4038000000000000
  %v45 = insertelement <8 x float> poison, float %v40, i32 0
  %v46 = shufflevector <8 x float> %v45, <8 x float> poison, <8 x i32> zeroinitializer
  br label %head4
head4:
  %v41 = phi i64 [ 0, %exit3 ], [ %v60, %body4 ]
  %v61 = icmp slt i64 %v41, %v27
  br i1 %v61, label %body4, label %exit4
body4:
  %v42 = add i64 %v13, %v41
  %v43 = getelementptr float, ptr %v7, i64 %v41
  %v44 = load <8 x float>, ptr %v43, align 4
  %v47 = fsub <8 x float> %v44, %v46
  %v48 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v47
  %v49 = select <8 x i1> %v48, <8 x float> splat (float 0x0000000000000000), <8 x float> %v47
  %v50 = bitcast <8 x float> %v49 to <8 x i32>
  %v51 = lshr <8 x i32> %v50, splat (i32 16)
  %v52 = and <8 x i32> %v51, splat (i32 1)
  %v53 = add <8 x i32> %v50, splat (i32 32767)
  %v54 = add <8 x i32> %v53, %v52
  %v55 = lshr <8 x i32> %v54, splat (i32 16)
  %v56 = fcmp une <8 x float> %v49, %v49
  %v57 = select <8 x i1> %v56, <8 x i32> splat (i32 32704), <8 x i32> %v55
  %v58 = trunc <8 x i32> %v57 to <8 x i16>
  %v59 = getelementptr i16, ptr %v6, i64 %v42
  store <8 x i16> %v58, ptr %v59, align 2
  %v60 = add nsw i64 %v41, 8
  br label %head4
exit4:
  %v62 = add nsw i64 %v8, 1
  br label %head1
exit1:
  ret void
}

declare float @llvm.vector.reduce.fadd.v8f32(float, <8 x float>)
